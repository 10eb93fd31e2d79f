# frozen_string_literal: true

module Memintro
  # Handles lines while their log cannot be written: after a failure there is no attempt for some seconds, then one.
  # All lost lines are counted, and the next written line contains their number. Shared by all threads.
  # @api private
  class LogPause
    # Seconds between two attempts.
    SECONDS = 5
    # Name of the count in a line.
    FIELD = "dropped_lines"

    # @param clock [#call] seconds that never go back
    def initialize(clock = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) })
      @clock = clock
      @lock = Mutex.new
      @dropped = 0
      @over = false
      @due = 0
    end

    # @return [Integer, nil] how many lines were lost since the last written one: the caller writes now, with that
    #   number, and passes the outcome to {settle}. Nil: the caller must not write now, and the line counts as lost.
    def turn
      return 0 unless @over

      @lock.synchronize do
        forget_parents
        now = @clock.call
        if now < @due
          @dropped += 1
          next
        end

        # Other threads wait for the result of this attempt.
        @due = now + SECONDS
        @dropped.tap { @dropped = 0 }
      end
    end

    # @param carried [Integer] what {turn} answered
    # @param outcome [Symbol] `:written`; `:lost`, which does not concern the next line; `:stuck`: other lines cannot
    #   be written either
    # @return [void]
    def settle(carried, outcome)
      lost = outcome != :written
      return unless lost || @over

      @lock.synchronize do
        @pid = Process.pid
        @dropped += carried + 1 if lost
        @due = outcome == :stuck ? @clock.call + SECONDS : 0
        # Lines that were lost while the last one was written are reported by the next one.
        @over = lost || @dropped.positive?
      end
    end

    # @param line [String] without its end; a diff may follow below its first line
    # @param dropped [Integer]
    # @return [String]
    def self.mark(line, dropped)
      return line if dropped.zero?
      return "#{line.delete_suffix('}')},\"#{FIELD}\":#{dropped}}" if line.start_with?("{")

      line.sub(/$/, line.start_with?("MEMORY[") ? ", #{FIELD}: #{dropped}" : " #{FIELD}=#{dropped}")
    end

    private

    # In a forked child: the parent reports these lines.
    def forget_parents
      return if @pid == Process.pid

      @pid = Process.pid
      @dropped = 0
    end
  end
end
