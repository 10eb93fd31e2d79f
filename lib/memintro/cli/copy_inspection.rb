# frozen_string_literal: true

require_relative "inspection"
require_relative "long_stop"

module Memintro
  module CLI
    # The base of `account` and `leaks`: a frozen copy of each process counts, and there are no files to be read.
    #
    # A subcommand makes its report of an answer in `report(answer, name:, pid:)`.
    class CopyInspection < Inspection
      include LongStop

      # See {Inspection::FORMATS}.
      FORMATS = %w[text json html].freeze

      # @param words [Array<String>] PIDs and names
      # @return [Integer] the exit code
      def run(words)
        return super if @command

        require_relative "../../memintro"
        require_relative "../report/#{name}_report"
        raise Candidates.missing("give a PID, or -- CMD (memintro #{name} --help):", users) if words.empty?

        look(words)
      rescue Memintro::AccountError, Memintro::LeaksError, NoProcessError, ForbiddenError, ProcError => e
        raise Failure, e.message
      end

      private

      def look(words)
        inspect_live(words)
      end

      # Arguments of the request.
      def arguments
        {}
      end

      # Seconds to wait for an answer.
      def patience
        PATIENCE_SECONDS
      end

      # The notice before it.
      def announce(listener)
        announce_stop(listener.pid)
      end

      def inspect_all(listeners)
        over_all(listeners, apart: false) do |listener|
          announce(listener)
          asked = client(listener, @timeout || patience)
          answer = asked.ask_json(name, arguments)
          listener.called = asked.program
          write_live(listener, report(answer, name: who(listener), pid: listener.pid))
        end
      end
    end
  end
end
