# frozen_string_literal: true

module Memintro
  class Hunt
    # The clocks of a hunt: the time, and the processor time that the hunt has used. Specs pass a faster one.
    #
    # @api private
    class Clock
      # @return [Float] seconds, never going back
      def now
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end

      # @return [Time] of day
      def time
        Time.now
      end

      # @return [Float] seconds of processor time of this thread
      def cpu
        Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
      end

      # @return [Float] seconds of processor time of all children that have ended, and of theirs
      def children_cpu
        times = Process.times
        times.cutime + times.cstime
      end

      # @param stop [Background::Stop]
      # @param seconds [Numeric]
      # @return [Boolean] whether a stop is requested
      def wait(stop, seconds)
        stop.wait(seconds)
      end
    end
  end
end
