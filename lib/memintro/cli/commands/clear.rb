# frozen_string_literal: true

require_relative "../remote"
require_relative "../../support/units"

module Memintro
  module CLI
    # `memintro clear PID`.
    class Clear < Remote
      # What users type.
      NAME = "clear"
      # What it is for.
      SUMMARY = "clear the figures of a running process"
      # What its help begins with.
      BANNER = <<~TEXT
        Usage: memintro clear [options] PID|NAME…

        Clears all figures and blocks of a running process. If it tracks, it goes on tracking.

        #{TARGET}
      TEXT
      # What it sends.
      COMMAND = "clear"

      private

      def show(listener, answer)
        state = answer["tracking"] ? "it goes on tracking" : "it does not track"
        @out.puts("#{who(listener)} cleared its figures; #{state}")
      end
    end
  end
end
