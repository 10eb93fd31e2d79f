# frozen_string_literal: true

require_relative "../figures"

module Memintro
  module CLI
    # `memintro top PID`.
    class Top < Figures
      # The name of the command.
      NAME = "top"
      # Its purpose, for the list of commands.
      SUMMARY = "show the top call sites of a running process"
      # The beginning of its help.
      BANNER = <<~TEXT
        Usage: memintro top [options] PID|NAME…

        Shows the top call sites of a running process. --workers adds up the figures of the process and of all
        listening processes below it.

        #{TARGET}
      TEXT

      # @return [OptionParser]
      def options
        super do |parser|
          parser.on("--older-than-gcs N", "--older-than N",
                    "count only blocks that outlived N garbage collections") do |text|
            @older_than_gcs = Settings[:top].parse(text, "--older-than-gcs")
          rescue ArgumentError => e
            raise UsageError, e.message
          end
        end
      end

      # @param words [Array<String>] PIDs and names
      # @return [Integer]
      def run(words)
        raise UsageError, "a page is made by memintro report PID --html -o FILE" if given[:format] == :html
        raise UsageError, "--format #{given[:format]} is for memintro report" if stacks? && given[:format] != :json

        if @older_than_gcs && @workers
          raise UsageError,
                "--older-than-gcs cannot be added up over processes; leave out --workers, or give several PIDs"
        end

        figures(targets(words), default_top: 20)
      end

      private

      def read_answer(text)
        @older_than_gcs ? Memintro::Report.read_old(text, @older_than_gcs) : super
      end

      def request(top)
        ["top", { n: top, by: given[:by], older_than_gcs: @older_than_gcs }]
      end
    end
  end
end
