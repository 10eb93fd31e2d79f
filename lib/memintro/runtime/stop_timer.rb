# frozen_string_literal: true

module Memintro
  # Stops tracking after a time, in this process and in each forked child. It uses a thread of memintro's own, and none
  # unless the time is set.
  # @api private
  module StopTimer
    # Seconds between tries if another thread is starting or stopping.
    AGAIN = 0.02
    private_constant :AGAIN

    # Replaces a time that was set before.
    #
    # @param seconds [Numeric, nil] from now on; nil: never
    # @return [nil]
    def self.set(seconds)
      former = @timer
      @timer = nil
      former&.stop
      return unless seconds

      due = now + seconds
      Loader.need(:Background)
      @timer = Background.start("memintro-stop") { |stop| wait(stop, due) }
      nil
    end

    def self.wait(stop, due)
      return if stop.wait([due - now, 0].max)

      begin
        Native.stop unless stop.requested?
      rescue BusyError
        stop.wait(AGAIN)
        retry
      end
    end
    private_class_method :wait

    # The clock of the machine: a child goes on counting.
    def self.now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
    private_class_method :now
  end
end
