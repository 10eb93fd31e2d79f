# frozen_string_literal: true

require_relative "../remote"
require_relative "../../support/units"

module Memintro
  module CLI
    # `memintro clear PID`.
    class Clear < Remote
      # The name of the command.
      NAME = "clear"
      # Its purpose, for the list of commands.
      SUMMARY = "clear the figures of a running process"
      # The beginning of its help.
      BANNER = <<~TEXT
        Usage: memintro clear [options] PID|NAME…

        Clears all figures and blocks of a running process. Tracking continues.

        #{TARGET}
      TEXT
      # The command of the protocol that it sends.
      COMMAND = "clear"

      private

      def show(listener, answer)
        state = answer["tracking"] ? "it still tracks" : "it does not track"
        @out.puts("#{who(listener)} cleared its figures; #{state}")
      end
    end
  end
end
