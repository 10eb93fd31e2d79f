# frozen_string_literal: true

require_relative "../error"
require_relative "../support/arguments"
require_relative "../support/files"
require_relative "../support/json_text"
require_relative "../support/list"
require_relative "../support/names"
require_relative "../support/paths"
require_relative "../support/tool_call"
require_relative "../support/value_object"
require_relative "holder"

module Memintro
  # A dump of a heap in a file, that of {Memintro.heap_dump} or of `ObjectSpace.dump_all` of Ruby 2.1 and later, plain
  # or compressed by gzip or zstd. `memintro-tool` reads it again for each question, in a process of its own. Frozen.
  #
  # Questions about some objects take `class:` (a name), `address:` (one or several, such as `"0x7f0012345678"`),
  # `site:` (the line that made them: the end of a path, with or without line), `generation:` (a number or a range)
  # and `older_than_gcs:`; an object must match all given ones.
  #
  # Keywords are the flags of `memintro heap`, which its help lists: `older_than_gcs: 3` is `--older-than-gcs 3`. The
  # tool checks them, and a wrong one is an ArgumentError.
  #
  # @example
  #   dump = Memintro::HeapDump.open("/tmp/app.ndjson.zst")
  #   puts dump.holders(class: "Message")
  #   puts dump.histo
  class HeapDump
    # An answer from a dump: a sentence, notes on its limits, and the figures by name. Frozen.
    class Answer
      include ByName

      # Names of the fields of all answers.
      ATTRIBUTES = %i[sentence notes problems truncated].freeze

      # @return [String] the main result
      attr_reader :sentence
      # @return [List<String>] limits of the answer
      attr_reader :notes
      # @return [List<Hash{Symbol => Object}>] problems of the dump: `dump` (0, 1 or 2), `offset` in bytes of its
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

      # @return [Hash{Symbol => Object}] all fields of the answer, frozen; docs/heap_files.md describes them
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

    # @api private
    # @param name [Symbol] a keyword
    # @param value [Object]
    # @return [Array<String>] the flag of the tool that it stands for; an Array is several
    def self.words(name, value)
      flag = "--#{name.to_s.tr('_', '-')}"
      case value
      when nil, false then []
      when true then [flag]
      when Array then value.flat_map { |one| words(name, one) }
      else ["#{flag}=#{word(name, value)}"]
      end
    end

    def self.word(name, value)
      case value
      when Integer then name == :address ? format("0x%x", value) : value.to_s
      when Symbol then value.to_s
      when Range then "#{value.begin}..#{value.end && value.exclude_end? ? value.end - 1 : value.end}"
      else Arguments.text(name, value.is_a?(Module) ? value.name : value)
      end
    end
    private_class_method :word

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
    # @param flags [Hash{Symbol => Object}] `by:` (`:class`, `:type` or `:line`), `top:` (rows)
    # @return [Answer] with `:rows`
    # @raise [HeapDumpError, ArgumentError]
    # @example
    #   puts dump.histo(by: :line)
    def histo(**flags) = Answer.new(ask("histo", flags))

    # Counts objects and bytes by the generation of their allocation.
    #
    # @param flags [Hash{Symbol => Object}] `top:` (rows)
    # @return [Answer] with `:rows`
    # @raise [HeapDumpError, ArgumentError]
    # @example
    #   dump.generations[:rows].last   # => {generation: 41, objects: 1200, bytes: 96000, class: "String"}
    def generations(**flags) = Answer.new(ask("generations", flags))

    # Lists the objects that retain most, or are largest themselves.
    #
    # @param flags [Hash{Symbol => Object}] `by:` (`:retained_bytes` or `:bytes`), `top:` (rows), `all:` (whether to
    #   also list lasting objects: classes, threads, the VM's own objects)
    # @return [Answer] with `:rows`
    # @raise [HeapDumpError, ArgumentError]
    # @example
    #   dump.top[:rows].first[:retained_bytes]   # => 18400160
    def top(**flags) = Answer.new(ask("top", flags))

    # Shows the upper part of the dominator tree, and classes by retained bytes.
    #
    # @param flags [Hash{Symbol => Object}] `top:` (rows)
    # @return [Answer] with `:classes` and `:tree`
    # @raise [HeapDumpError, ArgumentError]
    # @example
    #   puts dump.dominators
    def dominators(**flags) = Answer.new(ask("dominators", flags))

    # Lists texts that occur more than once, the largest total of copies first.
    #
    # @param flags [Hash{Symbol => Object}] `top:` (rows)
    # @return [Answer] with `:rows`
    # @raise [HeapDumpError, ArgumentError]
    # @example
    #   dump.duplicates[:spare_bytes]   # => 1204160
    def duplicates(**flags) = Answer.new(ask("duplicates", flags))

    # Counts strings by length and line, and lists the longest.
    #
    # @param flags [Hash{Symbol => Object}] `top:` (rows)
    # @return [Answer] with `:lengths`, `:lines` and `:largest`
    # @raise [HeapDumpError, ArgumentError]
    # @example
    #   dump.strings[:largest].first   # => {address: "0x7f…", bytesize: 1048576, line: "app/a.rb:3"}
    def strings(**flags) = Answer.new(ask("strings", flags))

    # Shows the ways that hold the objects.
    #
    # @param flags [Hash{Symbol => Object}] which objects; `by:` (`:bytes` or `:objects`: which groups come first),
    #   `top:` (groups)
    # @return [Holders]
    # @raise [HeapDumpError, ArgumentError] the first also if no object fits
    # @example
    #   puts dump.holders(class: "Message")
    def holders(**flags) = Holders.new(ask("holders", flags))

    # Finds ways from roots to the first of the objects, which share no object, the shortest first.
    #
    # @param paths [Integer] how many at most
    # @param flags [Hash{Symbol => Object}] which objects
    # @return [List<HeldPath>]
    # @raise [HeapDumpError, ArgumentError] the first also if no object fits
    # @example
    #   puts dump.path_to_root(address: "0x7f0012345678", paths: 3)
    def path_to_root(paths: 1, **flags)
      List.new(ask("path", { paths: paths, **flags }).fetch("paths").map { |row| HeldPath.new(row) })
    end

    # Lists referrers of the objects: other objects, then roots.
    #
    # @param flags [Hash{Symbol => Object}] which objects; `top:` (rows of each)
    # @return [List<Holder>]
    # @raise [HeapDumpError, ArgumentError] the first also if no object fits
    # @example
    #   dump.referrers(class: "Archive").map(&:edge)   # => ["@archive", "[3]"]
    def referrers(**flags)
      answer = ask("referrers", flags)
      List.new(answer.fetch("referrers").map { |row| Holder.new(row) } + Holder.roots(answer))
    end

    # Counts the memory that would be free without the objects.
    #
    # @param flags [Hash{Symbol => Object}] which objects; `top:` (rows)
    # @return [Answer] with `:retained_bytes`, `:retained_objects` and `:retained_classes`
    # @raise [HeapDumpError, ArgumentError] the first also if no object fits
    # @example
    #   dump.retained(class: "Cache")[:retained_bytes]   # => 18400160
    def retained(**flags) = Answer.new(ask("retained", flags))

    # Compares the dump with a later one of the process. With two later ones, `:kept` are objects that are new in the
    # first of them and still exist in the second: those accumulate.
    #
    # @param later [Array<HeapDump, String>] one or two
    # @param flags [Hash{Symbol => Object}] `top:` (rows)
    # @return [Answer] with `:new`, `:gone` and `:grown`; of three dumps with `:kept` and `:gone`
    # @raise [HeapDumpError, ArgumentError]
    # @example
    #   puts before.diff(middle, after)
    def diff(*later, **flags)
      dumps = later.map { |dump| dump.is_a?(HeapDump) ? dump.path : HeapDump.open(dump).path }
      Answer.new(ask("diff", flags, [path, *dumps]))
    end

    # Writes the dump as a page: a treemap of retained bytes, the dominator tree, classes, a search.
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

    def written(command, output) = Answer.new(ask(command, { output: HeapDump.absolute(:output, output) }))

    def ask(command, flags, files = [path])
      words = flags.flat_map { |name, value| HeapDump.words(name, value) }
      Memintro.untracked { answered(["heap", command, "--json", "--with-text", *words, "--", *files]) }
    end

    def answered(arguments)
      output, said, status = ToolCall.capture(*arguments)
      # An answer says if its dump is damaged.
      return JsonText.parse(output) unless output.empty?

      said = Names.lines(said.force_encoding(Encoding::UTF_8).scrub).strip.delete_prefix("memintro: ")
      raise HeapDumpError, said unless status.exitstatus == 2

      raise ArgumentError, said.gsub(/--[a-z][a-z-]+/) { |flag| flag.delete_prefix("--").tr("-", "_") }
    rescue Errno::ENOENT
      raise HeapDumpError, Paths.no_tool
    rescue JsonText::Invalid => e
      raise HeapDumpError, "the tool's answer is not JSON (#{e.message}); it may belong to another version of memintro"
    end
  end
end
