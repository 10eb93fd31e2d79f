# frozen_string_literal: true

require_relative "command"
require_relative "targets"
require_relative "../support/style"
require_relative "../support/units"

module Memintro
  module CLI
    # The base of the subcommands that ask a running process through its control socket: flags, timeouts, and output.
    #
    # A subcommand defines its command in `COMMAND` and the arguments in `arguments`, and prints an answer in
    # `show(listener, answer)`.
    class Remote < Command
      include Targets

      # The help text about the operand.
      TARGET = <<~TEXT.chomp.freeze
        PID or NAME is a process that listens; memintro ps lists them. NAME is the name of
        Memintro.listen(name: …), or of the program. A process listens after Memintro.listen, or with
        MEMINTRO_LISTEN=1.
      TEXT

      # Most bytes of a line that are kept before they are printed.
      LONGEST_LINE = 65_536
      private_constant :LONGEST_LINE

      # @return [OptionParser]
      def options
        super do |parser|
          parser.separator("\nOptions:") unless settings.any?
          yield parser if block_given?
          parser.on("--workers", "include all listening processes below it") { @workers = true }
          user_option(parser)
          default = Control::Client::PATIENCE_SECONDS
          parser.on("--timeout SECONDS", "seconds to wait for an answer; default #{default}") do |text|
            @timeout = seconds("--timeout", text)
          end
          parser.on("--json", "print JSON, a line for each process") { @json = true }
        end
      end

      # @param words [Array<String>] PIDs and names
      # @return [Integer]
      def run(words)
        over_all(targets(words), apart: false) { |listener| answer(listener) }
      end

      private

      # @return [Boolean]
      def json?
        @json || given[:format] == :json
      end

      def over_all(listeners, apart: !json?)
        super
      end

      def answer(listener)
        asked = client(listener)
        reply = asked.ask_json(self.class::COMMAND, arguments)
        listener.called = asked.program
        json? ? @out.puts(JsonText.line({ "pid" => listener.pid, **reply })) : show(listener, reply)
      end

      # Prints a text while it arrives, line by line, so that no character is cut in two. A line that is too long is
      # printed in pieces.
      def text(asked, command, arguments)
        rest = +"".b
        asked.ask(command, arguments) do |piece|
          rest << piece
          last = rest.rindex("\n") || (rest.bytesize > LONGEST_LINE ? rest.bytesize - 1 : next)
          @out.write(Names.lines(rest.slice!(0..last), colour: arguments[:colour]))
        end
      ensure
        @out.write(Names.lines(rest, colour: arguments[:colour])) unless rest.empty?
      end

      # @return [Hash]
      def arguments
        {}
      end

      def client(listener)
        super(listener, @timeout || Control::Client::PATIENCE_SECONDS)
      end

      # @return [String] totals in words
      def live(totals)
        "live #{shown(totals, :bytes, 'live_bytes')} in #{shown(totals, :count, 'live_blocks')} " \
          "#{Units.noun(totals['live_blocks'], 'block')}"
      end

      # @param figures [Hash] as a process answers them
      # @param unit [Symbol] a method of {Units}
      # @return [String] with its standard error, if the process estimates it
      def shown(figures, unit, name)
        Units.uncertain(figures[name], figures["#{name}_standard_error"], &Units.method(unit))
      end
    end
  end
end
