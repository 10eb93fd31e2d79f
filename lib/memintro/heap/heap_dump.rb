# frozen_string_literal: true

require_relative "../error"
require_relative "../support/arguments"
require_relative "../support/files"
require_relative "../support/json_text"
require_relative "../support/list"
require_relative "../support/names"
require_relative "../support/paths"
require_relative "../support/value_object"
require_relative "holder"

module Memintro
  # A dump of a heap in a file, that of {Memintro.heap_dump} or of `ObjectSpace.dump_all` of Ruby 2.1 and later, plain
  # or compressed by gzip or zstd. `memintro-tool` reads it anew for each question, in memory of its own. Frozen.
  #
  # Questions about some objects take `class:` (a name), `address:` (one or several, such as `"0x7f0012345678"`),
  # `site:` (the line that made them: the end of a path, with or without line), `generation:` (a number or a range) and
  # `older_than_gcs:`; all that are given must fit.
  #
  # @example
  #   dump = Memintro::HeapDump.open("/tmp/app.ndjson.zst")
  #   puts dump.holders(class: "Message")
  #   puts dump.histo
  class HeapDump
    # Rows of each list unless told otherwise.
    TOP = 20
    private_constant :TOP

    # What was found in a dump: a sentence, what limits it, and the figures by name. Frozen.
    class Answer
      include ByName

      # Names of what all answers have.
      ATTRIBUTES = %i[sentence notes problems truncated].freeze

      # @return [String] what a tired reader needs
      attr_reader :sentence
      # @return [List<String>] what limits the answer
      attr_reader :notes
      # @return [List<Hash{Symbol => Object}>] what is wrong in the dump: `dump` (0, 1 or 2), `offset` in bytes of its
      #   unpacked text, `message`
      attr_reader :problems

      # @api private
      # @param answer [Hash{String => Object}] the tool's
      def initialize(answer)
        @values = HeapDump.frozen(answer)
        @sentence = @values.fetch(:sentence)
        @notes = List.new(@values.fetch(:notes))
        @problems = List.new(@values.fetch(:problems))
        freeze
      end

      # @return [Boolean] whether it is of a part of the dump: the rest is missing or could not be read
      def truncated? = @values.fetch(:truncated)

      # The name without question mark, as {#to_h} has it.
      # @api private
      alias truncated truncated?

      # @param name [Symbol, String] `:rows`, `:classes`, `:new` and so on: see {#to_h}
      # @return [Object]
      # @raise [ArgumentError] if there is none of that name
      # @example
      #   dump.histo[:rows].first   # => {class: "String", objects: 182640, bytes: 11204160}
      def [](name)
        @values.fetch(name.to_sym) do
          raise ArgumentError, "this answer has no #{Arguments.shown(name)}; it has #{@values.keys.join(', ')}"
        end
      end

      # @return [Hash{Symbol => Object}] all that the tool found, frozen; docs/heap_files.md describes it
      def to_h = @values.except(:text)

      # @return [String] for people: the sentence, then lists
      def to_s = @values.fetch(:text)

      # @return [String] the sentence
      def inspect = "#<#{self.class} #{sentence}>"
    end

    # @param path [String, #to_path]
    # @return [HeapDump]
    # @raise [HeapDumpError] if there is no such file, or it may not be read
    # @example
    #   Memintro::HeapDump.open("/tmp/app.ndjson.zst").histo
    def self.open(path) = new(path)

    # @api private
    # @param value [Object] as JSON has it
    # @return [Object] with Symbols for keys, frozen
    def self.frozen(value)
      case value
      when Hash then value.to_h { |key, item| [key.to_sym, frozen(item)] }.freeze
      when Array then value.map { |item| frozen(item) }.freeze
      else value.freeze
      end
    end

    # @api private
    # @return [String] the file that an argument names
    # @raise [HeapDumpError]
    def self.absolute(name, file)
      file = Arguments.text(name, file)
      Files.absolute(file)
    rescue Error => e
      raise HeapDumpError, e.message
    end

    # @return [String] the file
    attr_reader :path

    # See {.open}.
    # @api private
    def initialize(path)
      @path = HeapDump.absolute(:path, path).freeze
      raise HeapDumpError, "#{Names.printable(@path)}: is a folder; give a heap dump" if File.directory?(@path)

      File.open(@path) { nil }
      freeze
    rescue SystemCallError => e
      raise HeapDumpError, "#{Names.printable(@path)}: #{e.message.sub(/ @ .*/, '')}"
    end

    # Counts objects and bytes.
    #
    # @param by [Symbol] `:class`, `:type` or `:line`
    # @param top [Integer]
    # @return [Answer] with `:rows`
    # @raise [HeapDumpError]
    # @example
    #   puts dump.histo(by: :line)
    def histo(by: :class, top: TOP) = asked("histo", top, "--by=#{Arguments.choice(:by, by, %i[class type line])}")

    # Counts objects and bytes by the generation of their allocation.
    #
    # @return [Answer] with `:rows`
    # @raise [HeapDumpError]
    # @example
    #   dump.generations[:rows].last   # => {generation: 41, objects: 1200, bytes: 96000, class: "String"}
    def generations = asked("generations", TOP)

    # Lists the objects that retain most, or are largest themselves.
    #
    # @param by [Symbol] `:retained_bytes` or `:bytes`
    # @param top [Integer]
    # @param all [Boolean] whether to list what is always there, too: classes, threads, the VM's own objects
    # @return [Answer] with `:rows`
    # @raise [HeapDumpError]
    # @example
    #   dump.top[:rows].first[:retained_bytes]   # => 18400160
    def top(top: TOP, by: :retained_bytes, all: false)
      asked("top", top, "--by=#{Arguments.choice(:by, by, %i[retained_bytes bytes])}",
            *("--all" if Arguments.flag(:all, all)))
    end

    # Says what retains most: the upper part of the dominator tree, and classes by what their objects retain.
    #
    # @param top [Integer]
    # @return [Answer] with `:classes` and `:tree`
    # @raise [HeapDumpError]
    # @example
    #   puts dump.dominators
    def dominators(top: TOP) = asked("dominators", top)

    # Lists texts that are there more than once, those first whose copies take most.
    #
    # @param top [Integer]
    # @return [Answer] with `:rows`
    # @raise [HeapDumpError]
    # @example
    #   dump.duplicates[:spare_bytes]   # => 1204160
    def duplicates(top: TOP) = asked("duplicates", top)

    # Counts strings by length and line, and lists the longest.
    #
    # @param top [Integer]
    # @return [Answer] with `:lengths`, `:lines` and `:largest`
    # @raise [HeapDumpError]
    # @example
    #   dump.strings[:largest].first   # => {address: "0x7f…", bytesize: 1048576, line: "app/a.rb:3"}
    def strings(top: TOP) = asked("strings", top)

    # Says by which ways the objects are held.
    #
    # @param top [Integer] groups
    # @param by [Symbol] `:bytes` or `:objects`: which come first
    # @return [Holders]
    # @raise [HeapDumpError] also if no object fits
    # @example
    #   puts dump.holders(class: "Message")
    def holders(top: TOP, by: :bytes, **objects)
      Holders.new(ask("holders", top, "--by=#{Arguments.choice(:by, by, Holders::BY)}", *selection(objects)))
    end

    # Says how roots lead to the first of the objects, by ways that share no object: the shortest first.
    #
    # @param paths [Integer] how many at most
    # @return [List<HeldPath>]
    # @raise [HeapDumpError] also if no object fits
    # @example
    #   puts dump.path_to_root(address: "0x7f0012345678", paths: 3)
    def path_to_root(paths: 1, **objects)
      Arguments.count(:paths, paths, least: 1, most: 100)
      answer = ask("path", TOP, "--paths=#{paths}", *selection(objects))
      List.new(answer.fetch("paths").map { |row| HeldPath.new(row) })
    end

    # Lists who refers to the objects: other objects, then roots.
    #
    # @param top [Integer] of each
    # @return [List<Holder>]
    # @raise [HeapDumpError] also if no object fits
    # @example
    #   dump.referrers(class: "Archive").map(&:edge)   # => ["@archive", "[3]"]
    def referrers(top: TOP, **objects)
      answer = ask("referrers", top, *selection(objects))
      List.new(answer.fetch("referrers").map { |row| Holder.new(row) } + Holder.roots(answer))
    end

    # Says what would be free if the objects were gone.
    #
    # @param top [Integer]
    # @return [Answer] with `:retained_bytes`, `:retained_objects` and `:retained_classes`
    # @raise [HeapDumpError] also if no object fits
    # @example
    #   dump.retained(class: "Cache")[:retained_bytes]   # => 18400160
    def retained(top: TOP, **objects) = asked("retained", top, *selection(objects))

    # Says what a later dump of the process has more or less of. With two later ones, what is new in the first of
    # them and still there in the second: that is what piles up.
    #
    # @param later [Array<HeapDump, String>] one or two
    # @param top [Integer]
    # @return [Answer] with `:new`, `:gone` and `:grown`; of three dumps with `:kept` and `:gone`
    # @raise [HeapDumpError, ArgumentError]
    # @example
    #   puts before.diff(middle, after)
    def diff(*later, top: TOP)
      raise ArgumentError, "#{later.size} later dumps are given; it must be one or two" unless later.size.between?(1, 2)

      dumps = later.map { |dump| dump.is_a?(HeapDump) ? dump.path : HeapDump.open(dump).path }
      asked("diff", top, files: [path, *dumps])
    end

    # Writes the dump as a page: a treemap of what is retained, the dominator tree, classes, a search.
    #
    # @param output [String, #to_path] the file to write
    # @return [Answer]
    # @raise [HeapDumpError]
    # @example
    #   dump.html("/tmp/heap.html")
    def html(output) = written("html", output)

    # Writes the dump for Chrome's developer tools (Memory, Load).
    #
    # @param output [String, #to_path] the file to write; its name must end in .heapsnapshot for Chrome
    # @return [Answer]
    # @raise [HeapDumpError]
    # @example
    #   dump.heapsnapshot("/tmp/app.heapsnapshot")
    def heapsnapshot(output) = written("heapsnapshot", output)

    # @return [String] the file
    def inspect = "#<#{self.class} #{path}>"

    private

    def written(command, output) = asked(command, TOP, "--output=#{HeapDump.absolute(:output, output)}")

    def asked(command, top, *flags, files: [path]) = Answer.new(ask(command, top, *flags, files: files))

    def selection(objects)
      unknown = objects.keys - %i[class address site line generation older_than_gcs]
      raise ArgumentError, "unknown keyword#{'s' if unknown.size > 1}: #{unknown.join(', ')}" if unknown.any?
      raise ArgumentError, "give class:, address:, site:, generation: or older_than_gcs:" if objects.compact.empty?

      addresses = Array(objects[:address]).map { |one| one.is_a?(Integer) ? format("0x%x", one) : one }
      generations = objects[:generation]
      generations = "#{generations.begin}..#{last_of(generations)}" if generations.is_a?(Range)
      [*addresses.map { |one| "--address=#{Arguments.text(:address, one)}" },
       *objects.slice(:class, :site, :line).compact.map { |name, value| "--#{name}=#{named(name, value)}" },
       *("--generation=#{generations}" if generations),
       *("--older-than-gcs=#{Arguments.count(:older_than_gcs, objects[:older_than_gcs])}" if objects[:older_than_gcs])]
    end

    def named(name, value) = Arguments.text(name, value.is_a?(Module) ? value.name : value)

    def last_of(range)
      range.end && range.exclude_end? ? range.end - 1 : range.end
    end

    def ask(command, top, *flags, files: [path])
      Arguments.count(:top, top, least: 1, most: 1_000_000)
      Memintro.untracked { answered(["heap", command, "--json", "--with-text", "--top=#{top}", *flags, "--", *files]) }
    end

    def answered(arguments)
      errors, theirs = IO.pipe
      output = IO.popen([{ "LD_PRELOAD" => nil }, Paths.tool, *arguments, { err: theirs }], "rb") do |pipe|
        theirs.close
        pipe.read
      end
      said = Names.lines(errors.read.to_s.dup.force_encoding(Encoding::UTF_8).scrub).strip.delete_prefix("memintro: ")
      # An answer says if its dump is damaged.
      output.empty? ? raise(HeapDumpError, said) : JsonText.parse(output)
    rescue Errno::ENOENT
      raise HeapDumpError, Paths.no_tool
    rescue JsonText::Invalid => e
      raise HeapDumpError, "the tool's answer is not JSON (#{e.message}); it may belong to another version of memintro"
    ensure
      [errors, theirs].each { |stream| stream&.close }
    end
  end
end
