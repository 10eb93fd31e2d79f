# frozen_string_literal: true

require_relative "command"
require_relative "launch"

module Memintro
  module CLI
    # `memintro run`: becomes the command, tracked from its first allocation. There is no parent left to stand between
    # the command and its signals, streams or exit status.
    class Run < Command
      # What its help begins with.
      BANNER = <<~TEXT
        Usage: memintro run [options] -- CMD [ARGUMENTS]

        Runs CMD with every malloc of its Ruby processes tracked from the start, and reports by call site when each
        of them ends. Without --report the report goes to standard error. With a FILE without %p, the first
        Ruby process takes FILE and each other one FILE.PID. A process that ends by exit! or a fatal signal leaves
        a raw dump there instead, for memintro report. CMD's streams, signals and exit status are its own.
      TEXT
      # The settings it takes as flags.
      SETTINGS = Launch::SETTINGS

      # @param command [Array<String>]
      # @return [Integer] never, if all is well
      def run(command)
        raise UsageError, "no command to run: memintro run [options] -- CMD (memintro run --help)" if command.empty?

        Launch.new(given).become(command, Settings.disabled? ? Launch.new(given).disabled : environment)
      end

      private

      # What follows the first word that is no flag belongs to CMD.
      def parse(parser, argv)
        parser.order(argv)
      end

      def environment
        launch = Launch.new(given).check
        { "MEMINTRO_APP_ROOT" => ENV["MEMINTRO_APP_ROOT"] || Dir.pwd, **launch.variables }
      end
    end
  end
end
