# frozen_string_literal: true

require_relative "../remote"
require_relative "../../support/defaults"
require_relative "../../support/units"

module Memintro
  module CLI
    # `memintro start PID`.
    class Start < Remote
      # The name of the command.
      NAME = "start"
      # Its purpose, for the list of commands.
      SUMMARY = "start tracking in a running process"
      # The beginning of its help.
      BANNER = <<~TEXT
        Usage: memintro start [options] PID|NAME…

        Starts tracking in a running process. If it tracks already with the same settings, nothing changes. With
        another mode, it keeps what was collected. With other limits, it starts again from zero. Its options for
        objects and native callers take effect at once: without --objects, tracking of objects ends.

        #{TARGET}
      TEXT
      # The settings that are flags.
      SETTINGS = Defaults::START
      # The command of the protocol that it sends.
      COMMAND = "start"

      private

      def arguments
        given
      end

      # Results, by the state in the answer.
      STATES = { "started" => "tracks its allocations now",
                 "restarted" => "restarted tracking with the new settings",
                 "switched" => "changed the mode, and kept its figures",
                 "unchanged" => "tracked already; nothing changed" }.freeze
      # Further changes, by the word in the answer.
      CHANGES = { "objects_on" => "it tracks objects from now on", "objects_off" => "it no longer tracks objects",
                  "objects_others" => "it tracks other objects, from zero",
                  "native_callers_on" => "it finds native callers from now on",
                  "native_callers_off" => "it no longer finds native callers",
                  "stop_after_on" => "it stops after the given time" }.freeze
      private_constant :STATES, :CHANGES

      def show(listener, answer)
        changes = CHANGES.values_at(*answer["changes"]).compact
        state = STATES.fetch(answer["state"])
        state = "tracked already, with the same limits" if answer["state"] == "unchanged" && changes.any?
        @out.puts("#{who(listener)} #{[state, *changes].join('; ')} (#{answer['mode']} mode)")
      end
    end
  end
end
