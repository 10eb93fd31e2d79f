# frozen_string_literal: true

require_relative "../command"
require_relative "../launch"
require_relative "../../support/files"

module Memintro
  module CLI
    # `memintro run`: becomes the command, which is tracked from its first allocation. No parent process remains, so the
    # command keeps its signals, streams and exit status.
    class Run < Command
      # The name of the command.
      NAME = "run"
      # Its purpose, for the list of commands.
      SUMMARY = "run a command with tracking on, and report when it ends"
      # The beginning of its help.
      BANNER = <<~TEXT
        Usage: memintro run [options] -- CMD [ARGUMENTS]

        Runs CMD and tracks every malloc of its Ruby processes from the start. Each process writes a report by call
        site when it ends. Reports go to standard error, or to the FILE of --report. If FILE has no %p, the first
        Ruby process writes FILE, and each other one FILE.PID. A process that ends by exit! or by a fatal signal
        leaves a raw dump there instead; memintro report shows it. CMD keeps its streams, signals and exit status.
      TEXT
      # The settings that are flags.
      SETTINGS = Launch::SETTINGS

      # @param command [Array<String>]
      # @return [Integer] only after a failure
      def run(command)
        raise UsageError, "no command to run: memintro run [options] -- CMD (memintro run --help)" if command.empty?

        Launch.new(given).become(command, Brake.on? ? Launch.new(given).disabled : environment)
      end

      private

      # All words after the first one that is not a flag belong to CMD.
      def parse(parser, argv)
        parser.order(argv)
      end

      def environment
        launch = Launch.new(given).check
        { "MEMINTRO_APP_ROOT" => ENV["MEMINTRO_APP_ROOT"] || Files.current_folder, **launch.variables }.compact
      end
    end
  end
end
