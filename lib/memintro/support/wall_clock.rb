# frozen_string_literal: true

module Memintro
  # The time of day as text. It is cheap, because the part that changes once a second is kept.
  #
  # @api private
  class WallClock
    # Takes about half a microsecond.
    # @return [String] `2026-01-31T09:47:05.123Z`, in UTC
    def text
      second, millisecond = Process.clock_gettime(Process::CLOCK_REALTIME, :millisecond).divmod(1_000)
      # The pair is replaced in one step, because threads share it.
      kept = @kept
      kept = @kept = [second, Time.at(second).utc.strftime("%Y-%m-%dT%H:%M:%S.").freeze].freeze if kept&.first != second
      "#{kept[1]}#{millisecond < 10 ? '00' : ('0' if millisecond < 100)}#{millisecond}Z"
    end
  end
end
