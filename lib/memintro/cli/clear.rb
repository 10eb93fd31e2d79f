# frozen_string_literal: true

require_relative "remote"
require_relative "../support/units"

module Memintro
  module CLI
    # `memintro clear PID`.
    class Clear < Remote
      # What its help begins with.
      BANNER = <<~TEXT
        Usage: memintro clear [options] PID|NAME…

        Has a running process forget all figures and blocks. It goes on tracking, if it does.

        #{TARGET}
      TEXT
      # What it sends.
      COMMAND = "clear"

      private

      def show(listener, answer)
        state = answer["tracking"] ? "tracks on" : "does not track"
        @out.puts("#{who(listener)} has forgotten its figures and #{state}")
      end
    end
  end
end
