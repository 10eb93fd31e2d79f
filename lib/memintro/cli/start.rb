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

        Has a running process track its allocations from now on. Where it does so already, with the same
        settings, nothing changes; another mode takes over what was collected, and with other limits it
        starts afresh.

        #{TARGET}
      TEXT
      # The settings it takes as flags.
      SETTINGS = %i[mode sample_bytes stop_after max_sites max_tracker_bytes].freeze
      # What it sends.
      COMMAND = "start"

      private

      def arguments
        given
      end

      # What came of it, by the state that the process answers.
      STATES = { "started" => "tracks its allocations now", "restarted" => "tracks afresh, with the new settings",
                 "switched" => "goes on in another way, with what it has collected",
                 "unchanged" => "was tracking already; nothing changed" }.freeze
      private_constant :STATES

      def show(listener, answer)
        @out.puts("#{who(listener)} #{STATES.fetch(answer['state'])} (#{answer['mode']} mode)")
      end
    end
  end
end
