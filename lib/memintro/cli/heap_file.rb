# frozen_string_literal: true

require_relative "command"
require_relative "tool"

module Memintro
  module CLI
    # `memintro heap COMMAND FILE`: checks the command line, then becomes `memintro-tool`, which reads the dump.
    class HeapFile < Command
      # What its help begins with.
      BANNER = <<~TEXT
        Usage: memintro heap COMMAND [options] FILE...

        Reads a heap dump: one of memintro heap-dump, or of ObjectSpace.dump_all of Ruby 2.1 and later.
        FILE may be compressed by gzip or zstd; - is standard input. It may also come first: memintro heap FILE top.
        docs/heap_files.md explains the answers.

          histo         objects and bytes by class, type or line (--by)
          top           the objects that retain most, without what every process has (--all); or those
                        that are largest themselves (--by bytes)
          dominators    what retains most: classes, and the tree from the top
          holders       what keeps the chosen objects alive, in groups of ways
          path          ways from roots to an object, without common objects (--paths)
          referrers     what refers to the chosen objects
          retained      what would be free without the chosen objects
          duplicates    strings that are there more than once
          strings       strings by length and by line
          generations   objects and bytes by generation
          diff          what is new, gone and grown in the second of two dumps; of three: new in the
                        second and still there in the third
          html          a page with a treemap, into -o PAGE
          heapsnapshot  a file for Chrome's developer tools, into -o FILE.heapsnapshot

      TEXT
      # Commands, and the most dumps that each takes.
      COMMANDS = { "histo" => 1, "top" => 1, "dominators" => 1, "holders" => 1, "path" => 1, "referrers" => 1,
                   "retained" => 1, "duplicates" => 1, "strings" => 1, "generations" => 1, "diff" => 3, "html" => 1,
                   "heapsnapshot" => 1 }.freeze
      # Commands about chosen objects.
      CHOOSING = %w[holders path referrers retained].freeze
      # What --by may be.
      BY = { "histo" => %w[class type line], "top" => %w[retained_bytes bytes],
             "holders" => %w[bytes objects] }.freeze

      # @param out [IO]
      def initialize(out)
        super
        @flags = []
      end

      # @return [OptionParser]
      def options
        super do |parser|
          parser.separator("Options:")
          choosing(parser)
          parser.on("--by WHAT", "class, type or line; of top: retained_bytes or bytes; of holders: bytes",
                    "or objects") { |what| @by = what }
          parser.on("--all", "of top: classes, threads that live and the VM's own objects, too") { @all = true }
          parser.on("-n", "--top N", "rows of each list; default 20") { |text| @flags << "--top=#{number(text)}" }
          parser.on("--paths N", Integer, "of path: how many; default 3") { |count| @flags << "--paths=#{count}" }
          parser.on("-o", "--output FILE", "of html and heapsnapshot: the file to write") { |file| @output = file }
          parser.on("--max-memory-bytes N", Integer, "end reading when the dump takes more; default: three quarters",
                    "of what is free") { |bytes| @flags << "--max-memory-bytes=#{bytes}" }
          parser.on("--json", "JSON, for programs") { @flags << "--json" }
        end
      end

      # @param words [Array<String>] the command and the dumps
      # @return [Integer] never, if all is well
      def run(words)
        command, *files = in_order(words)
        check(command, files)
        check_flags(command)
        @flags << "--by=#{@by}" if @by
        @flags << "--all" if @all
        @flags << "--output=#{absolute(@output)}" if @output && @output != "-"
        Tool.become("heap", command, *@flags, "--", *files)
      end

      private

      def choosing(parser)
        { "--class NAME" => "objects of this class, or of this type (HASH)",
          "--address ADDRESS" => "the object there (0x7f0012345678); may be given again",
          "--site PATH:LINE" => "objects that were allocated there: mailer.rb:12, or all of mailer.rb",
          "--line PATH:LINE" => "the same",
          "--generation N" => "objects of this generation: 7, 7..9, 7..",
          "--older-than-gcs N" => "objects that outlived N collections" }.each do |flag, help|
          parser.on(flag, help) do |value|
            @chosen = true
            @flags << "#{flag[/\A\S+/]}=#{value}"
          end
        end
      end

      # The command may stand behind its dumps, too.
      def in_order(words)
        at = COMMANDS.key?(words.first) ? 0 : words.index { |word| COMMANDS.key?(word) }
        at ? [words[at], *words.first(at), *words.drop(at + 1)] : words
      end

      def number(text)
        Settings[:top].parse(text, "--top").then { |top| top == :all ? 1_000_000 : top }
      rescue ArgumentError => e
        raise UsageError, e.message
      end

      def check(command, files)
        raise UsageError, "give a command and a heap dump (memintro heap --help)" unless command

        most = COMMANDS.fetch(command) do
          raise UsageError, "there is no memintro heap #{command.inspect}; there are #{COMMANDS.keys.join(', ')}"
        end
        least = command == "diff" ? 2 : 1
        return if files.size.between?(least, most)

        raise UsageError, "memintro heap #{command} takes #{most == 1 ? 'one dump' : 'two or three dumps'}, " \
                          "#{files.empty? ? 'none is' : "#{files.size} are"} given"
      end

      def check_flags(command)
        if CHOOSING.include?(command) && !@chosen
          raise UsageError, "memintro heap #{command} needs --class, --address, --site, --generation or " \
                            "--older-than-gcs"
        end

        allowed = BY[command]
        if @by && !allowed&.include?(@by)
          meant = allowed ? "it must be #{allowed.join(' or ')}" : "#{command} has none"
          raise UsageError, "--by is #{@by.inspect}; #{meant}"
        end
        raise UsageError, "memintro heap #{command} has no --all" if @all && command != "top"
        return unless %w[html heapsnapshot].include?(command) && @output.nil? && @out.respond_to?(:tty?) && @out.tty?

        raise UsageError, "memintro heap #{command} writes a file: give its name with -o"
      end
    end
  end
end
