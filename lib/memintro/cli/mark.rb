# frozen_string_literal: true

require_relative "remote"
require_relative "../support/units"

module Memintro
  module CLI
    # `memintro mark PID`.
    class Mark < Remote
      # What its help begins with.
      BANNER = <<~TEXT
        Usage: memintro mark [options] PID|NAME…

        Makes the live bytes of now the baseline of growth: memintro top --by growth PID then shows what came
        since.

        #{TARGET}
      TEXT
      # What it sends.
      COMMAND = "mark"

      private

      def show(listener, answer)
        note = answer["tracking"] ? "" : " (it does not track: memintro start #{listener.pid})"
        @out.puts("#{who(listener)} counts growth from now on: #{live(answer['totals'])}#{note}")
      end
    end
  end
end
