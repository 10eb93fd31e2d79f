# frozen_string_literal: true

require_relative "../remote"
require_relative "../../support/units"

module Memintro
  module CLI
    # `memintro mark PID`.
    class Mark < Remote
      # The name of the command.
      NAME = "mark"
      # Its purpose, for the list of commands.
      SUMMARY = "set the mark from which growth is counted"
      # The beginning of its help.
      BANNER = <<~TEXT
        Usage: memintro mark [options] PID|NAME…

        Sets the mark in a running process: growth counts from now on. memintro top --by growth PID then shows what
        grew.

        #{TARGET}
      TEXT
      # The command of the protocol that it sends.
      COMMAND = "mark"

      private

      def show(listener, answer)
        note = answer["tracking"] ? "" : " (it does not track: memintro start #{listener.pid})"
        @out.puts("#{who(listener)} counts growth from now on: #{live(answer['totals'])}#{note}")
      end
    end
  end
end
