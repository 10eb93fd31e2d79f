# frozen_string_literal: true

module Memintro
  # What lines say of memory that malloc has free but keeps. It takes an account of the process: a copy of it counts.
  # @api private
  module Fragmentation
    LOCK = Mutex.new
    private_constant :LOCK

    @begun = 0.0
    @bytes = nil

    # Threads that ask while another one measures share the next measurement, so that a busy server makes one copy of
    # itself at a time.
    #
    # @return [Integer, nil] resident bytes; nil where it cannot be known
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

    # Where the inside of the allocator is not known, nothing is better than a zero.
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
