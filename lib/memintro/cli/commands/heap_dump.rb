# frozen_string_literal: true

require_relative "../heap_progress"
require_relative "../remote"
require_relative "../../support/units"

module Memintro
  module CLI
    # `memintro heap-dump PID -o FILE`. The process writes the file; its answer is only a summary.
    class HeapDumpCommand < Remote
      include HeapProgress
      # The name of the command.
      NAME = "heap-dump"
      # Its purpose, for the list of commands.
      SUMMARY = "write all objects of a running process into a file, for heapy and the like"
      # The beginning of its help.
      BANNER = <<~TEXT
        Usage: memintro heap-dump [options] PID|NAME… -o FILE

        Writes all objects of a running process into a file, one line of JSON each, as ObjectSpace.dump_all does. The
        process stands still only while the kernel copies it. The process itself writes FILE, which appears when it
        is complete. A name that ends in .zst or .gz selects compression.

        #{LongStop::TEXT}

        #{TARGET}
      TEXT
      # The command of the protocol that it sends.
      COMMAND = "heap_dump"

      # @return [OptionParser]
      def options
        super do |parser|
          parser.on("-o", "--output FILE", "file to write; %p becomes the process id") { |file| @output = file }
          parser.on("--[no-]redact", "leave out contents of strings, not lengths and hashes; default:",
                    "unless RAILS_ENV and the like of the process say development or test") do |redact|
            @redact = redact
          end
          parser.on("--compress KIND", %w[plain gzip zstd], "plain, gzip or zstd; default: by name of FILE") do |kind|
            @compress = kind
          end
        end
      end

      # @param words [Array<String>] PIDs and names
      # @return [Integer]
      def run(words)
        raise UsageError, "give a file with -o (memintro heap-dump --help)" unless @output

        if (@workers || words.size > 1) && !@output.include?("%p")
          raise UsageError, "several processes need several files: put %p, which becomes the process id, into the " \
                            "name of -o"
        end

        super
      end

      private

      def arguments_for(listener)
        given = { path: absolute(@output.gsub("%p", listener.pid.to_s)) }
        given[:redact] = @redact unless @redact.nil?
        given[:compress] = @compress if @compress
        given
      end

      def show(listener, answer)
        size = Units.bytes(answer["bytes"])
        size << " (#{Units.bytes(answer['uncompressed_bytes'])} of lines)" unless answer["compression"] == "plain"
        objects = "#{Units.count(answer['objects'])} objects"
        @out.puts("#{Names.printable(answer['path'])}: #{objects} of #{who(listener)} in #{size}, written in " \
                  "#{answer['took_s']} s; it stood still for #{answer['pause_ms']} ms")
        @out.puts("The contents of strings were left out; --no-redact writes them.") if answer["redacted"]
        return if answer["unread_types"].zero?

        @out.puts("References of #{answer['unread_types']} types of C extensions are missing: their functions hang " \
                  "or crash.")
      end
    end
  end
end
