# frozen_string_literal: true

module Memintro
  # The figure of free memory that malloc keeps, for lines. It takes an account of the process, which a copy of the
  # process counts.
  # @api private
  module Fragmentation
    LOCK = Mutex.new
    private_constant :LOCK

    @begun = 0.0
    @bytes = nil

    # Threads that request it during a measurement share the next one, so a busy server makes one copy of itself at a
    # time.
    #
    # @return [Integer, nil] resident bytes; nil if unknown
    def self.bytes
      asked = now
      LOCK.synchronize do
        if @begun < asked
          @begun = now
          @bytes = measure
        end
        @bytes
      end
    end

    # For an allocator with unknown internals, nil is better than a zero.
    def self.measure
      free = Memintro.account(ruby: false)[:malloc_free]
      free.bytes if free.details[:inside_known]
    rescue Error
      nil
    end
    private_class_method :measure

    def self.now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
    private_class_method :now
  end
end
