# frozen_string_literal: true

module Memintro
  # Stops tracking when its time is over, in this process and in each forked child. It needs no thread of the
  # application's, and none at all unless it is set.
  # @api private
  module StopTimer
    # Between tries, where somebody else is just starting or stopping.
    AGAIN = 0.02
    private_constant :AGAIN

    # Takes the place of what was set before.
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

    # Of the whole machine: a child counts on.
    def self.now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
    private_class_method :now
  end
end
