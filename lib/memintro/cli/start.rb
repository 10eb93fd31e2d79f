# frozen_string_literal: true

require_relative "remote"
require_relative "../support/units"

module Memintro
  module CLI
    # `memintro start PID`.
    class Start < Remote
      # What its help begins with.
      BANNER = <<~TEXT
        Usage: memintro start [options] PID|NAME…

        Starts tracking in a running process. If it tracks already with the same settings, nothing changes. With
        another mode, it keeps what was collected. With other limits, it starts again from zero.

        #{TARGET}
      TEXT
      # The settings it takes as flags.
      SETTINGS = %i[mode sample_bytes objects stack_depth native_callers stop_after max_sites max_tracker_bytes].freeze
      # What it sends.
      COMMAND = "start"

      private

      def arguments
        given
      end

      # Results, by the state in the answer.
      STATES = { "started" => "tracks its allocations now",
                 "restarted" => "tracks its allocations anew, with the new settings",
                 "switched" => "changed the mode, and kept its figures",
                 "unchanged" => "tracked already; nothing changed" }.freeze
      private_constant :STATES

      def show(listener, answer)
        @out.puts("#{who(listener)} #{STATES.fetch(answer['state'])} (#{answer['mode']} mode)")
      end
    end
  end
end
