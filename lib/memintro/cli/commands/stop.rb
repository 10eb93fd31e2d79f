# frozen_string_literal: true

require_relative "../remote"
require_relative "../../support/units"

module Memintro
  module CLI
    # `memintro stop PID`.
    class Stop < Remote
      # The name of the command.
      NAME = "stop"
      # Its purpose, for the list of commands.
      SUMMARY = "stop tracking in a running process"
      # The beginning of its help.
      BANNER = <<~TEXT
        Usage: memintro stop [options] PID|NAME…

        Stops tracking in a running process. Its figures stay readable until the next start.

        #{TARGET}
      TEXT
      # The command of the protocol that it sends.
      COMMAND = "stop"

      private

      def show(listener, answer)
        done = answer["state"] == "stopped" ? "stopped tracking" : "was not tracking"
        totals = answer.fetch("totals")
        @out.puts("#{who(listener)} #{done}; #{live(totals)}, allocated #{shown(totals, :bytes, 'allocated_bytes')} " \
                  "in #{shown(totals, :count, 'allocations')} #{Units.noun(totals['allocations'], 'call')}")
      end
    end
  end
end
