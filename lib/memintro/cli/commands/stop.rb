# frozen_string_literal: true

require_relative "../remote"
require_relative "../../support/units"

module Memintro
  module CLI
    # `memintro stop PID`.
    class Stop < Remote
      # What users type.
      NAME = "stop"
      # What it is for.
      SUMMARY = "stop tracking in a running process"
      # What its help begins with.
      BANNER = <<~TEXT
        Usage: memintro stop [options] PID|NAME…

        Stops tracking in a running process. Its figures stay readable until the next start.

        #{TARGET}
      TEXT
      # What it sends.
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
