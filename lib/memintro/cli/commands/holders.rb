# frozen_string_literal: true

require_relative "../heap_progress"
require_relative "../remote"
require_relative "../../support/names"
require_relative "../../support/settings"

module Memintro
  module CLI
    # `memintro holders PID --class NAME`.
    class HoldersCommand < Remote
      include HeapProgress
      # The name of the command.
      NAME = "holders"
      # Its purpose, for the list of commands.
      SUMMARY = "show what keeps objects alive in a running process"
      # The beginning of its help.
      BANNER = <<~TEXT
        Usage: memintro holders [options] PID|NAME…

        Shows what keeps the objects of a class alive in a running process: the ways from roots, with their shares.
        A frozen copy of the process answers; the process stands still only while the kernel copies it. NAME is a
        class, or another name from an answer: imemo_callinfo, "(singleton class)", T_HASH. The contents of strings
        do not leave the process unless RAILS_ENV and the like say development or test.

        #{LongStop::TEXT}

        #{TARGET}
      TEXT
      # The command of the protocol that it sends.
      COMMAND = "holders"

      # @return [OptionParser]
      def options
        super do |parser|
          parser.on("--class NAME", "objects of this class, without its subclasses") { |name| @class = name }
          parser.on("--site PATH:LINE", "objects that this line made, or any line of PATH; needs",
                    "tracked objects (memintro start PID --objects)") { |site| @site = site }
          parser.on("--older-than-gcs N", "objects that outlived N collections; needs tracked objects") do |text|
            @older = number(text, "--older-than-gcs")
          end
          parser.on("-n", "--top N", "ways to show; default 10") { |text| @top = number(text, "--top") }
          parser.on("--by WHAT", %w[bytes objects], "which ways come first: bytes, the default, or objects") do |what|
            @by = what
          end
        end
      end

      # @param words [Array<String>] PIDs and names
      # @return [Integer]
      def run(words)
        unless @class || @site || @older
          raise UsageError, "give --class NAME, --site PATH:LINE or --older-than-gcs N (memintro holders --help)"
        end

        super
      end

      private

      def number(text, flag)
        value = Settings[:top].parse(text, flag)
        value == :all ? 1_000 : value
      rescue ArgumentError => e
        raise UsageError, e.message
      end

      def arguments_for(_listener)
        { class: @class, site: @site, older_than_gcs: @older, top: @top, by: @by,
          rendering: (true unless json?) }.compact
      end

      def show(listener, answer)
        @out.puts(Names.lines(answer["text"].to_s))
        @out.puts("\n#{who(listener)} stood still for #{answer['pause_ms']} ms") if answer["pause_ms"]
      end
    end
  end
end
