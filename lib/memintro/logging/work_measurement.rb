# frozen_string_literal: true

require_relative "../support/native"
require_relative "fragmentation"

module Memintro
  # The cost of one request or job, between {#begin} and {#end}: figures of its thread, if they are known, and of the
  # process in that time. Costs some microseconds, most of them for reading RSS twice.
  #
  # The figures of the thread are exact for this thread. What other threads did for the request is not included, because
  # it cannot be separated from their other work. The figures are nil if they would not be exact: tracking was off at
  # either end, or over its budget; figures began again in between (start, stop, clear); the request is known to have
  # been processed or ended in another thread; several fibers may take turns under a scheduler, or several threads share
  # a native one. In sampled mode only the bytes are known.
  #
  # @api private
  class WorkMeasurement
    # The kinds of work that {Native} counts.
    REQUEST = 0
    JOB = 1

    # Ruby threads that share native threads may move between them.
    SHARED_THREADS = RUBY_DESCRIPTION.include?("+MN")

    # @return [Integer] of the process at the end, resident; nil where it cannot be read
    attr_reader :rss_bytes
    # @return [Integer, nil] bytes that the thread asked malloc for
    attr_reader :malloc_bytes
    # @return [Integer, nil] how often
    attr_reader :malloc_calls
    # @return [Integer, nil] bytes that the thread freed, including those that other threads had allocated: any thread
    #   may collect garbage, so this does not describe the work
    attr_reader :freed_bytes
    # @return [Integer] objects that the process made meanwhile
    attr_reader :process_objects
    # @return [Integer] pieces of work of this kind in progress in the process, including this one: the greater number
    #   of those at the beginning and at the end
    attr_reader :in_flight

    # @param kind [Integer] {REQUEST} or {JOB}
    def initialize(kind)
      Native.untracked_enter
      @kind = kind
      @ended = false
      # All set at the beginning: adding one later would allocate memory that counts.
      @malloc_bytes = @malloc_calls = @freed_bytes = @process_objects = @process_gc_ns = @duration_ns = @traffic = nil
      @alone = own_thread?
      @thread = Thread.current
      @in_flight = Native.served_begin(kind)
      @rss_before = @rss_bytes = WorkMeasurement.rss
      @gc_before = GC.measure_total_time && GC.total_time
      @objects_before = GC.stat(:total_allocated_objects)
      @begun_ns = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
    ensure
      Native.untracked_leave
    end

    # Called last before the work; allocations from here on belong to the work.
    # @return [void]
    def begin_work
      @traffic = Native.thread_traffic if @alone
    end

    # Takes the figures; called first after the work. Only the first call counts.
    #
    # @param here [Boolean] whether all of the work was done in this thread
    # @return [Boolean] whether this was the first call
    def end_work(here: true)
      return false if @ended

      @ended = true
      traffic = Native.thread_traffic if here && @traffic
      Native.untracked_enter
      begin
        take(traffic)
      ensure
        Native.untracked_leave
      end
      true
    end

    # @return [Integer, nil] growth of the process's resident memory meanwhile; may be negative
    def rss_delta_bytes
      @rss_bytes && @rss_before && (@rss_bytes - @rss_before)
    end

    # @return [Float, nil] milliseconds that the process spent in GC meanwhile; nil where Ruby does not measure
    def process_gc_ms
      @process_gc_ns && (@process_gc_ns / 1e6).round(1)
    end

    # @return [Float] by the monotonic clock
    def duration_ms
      (@duration_ns / 1e6).round(1)
    end

    # @return [Integer, nil] resident bytes of the process that malloc has free but keeps, when the line is written;
    #   nil if the allocator has no such figure. A copy of the process counts them ({Memintro.account})
    def fragmentation_bytes
      Fragmentation.bytes
    end

    # @return [Integer]
    def pid
      Process.pid
    end

    # @return [Integer, nil] the thread's id, as the kernel has it
    def tid
      @thread.native_thread_id
    end

    # @return [Integer, nil] nil where it cannot be read
    def self.rss
      Native.rss
    rescue ProcError
      nil
    end

    private

    def take(traffic)
      @duration_ns = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - @begun_ns
      @rss_bytes = WorkMeasurement.rss
      @process_gc_ns = @gc_before && (GC.total_time - @gc_before)
      @process_objects = GC.stat(:total_allocated_objects) - @objects_before
      served = Native.served_end(@kind)
      @in_flight = served if served > @in_flight
      subtract(traffic) if traffic && @thread.equal?(Thread.current) && own_thread?
    end

    def subtract(after)
      # In the order of Memintro::Native.thread_traffic; calls and freed bytes are nil in sampled mode.
      beginning, bytes, calls, freed_bytes, dropped = after
      beginning_before, bytes_before, calls_before, freed_bytes_before, dropped_before = @traffic
      # Start or mode differ, or not all of it was tracked.
      return unless beginning == beginning_before && dropped == dropped_before && calls.nil? == calls_before.nil?

      @malloc_bytes = bytes - bytes_before
      return if calls.nil?

      @malloc_calls = calls - calls_before
      @freed_bytes = freed_bytes - freed_bytes_before
    end

    def own_thread?
      !SHARED_THREADS && Fiber.scheduler.nil? && Ractor.current.equal?(MAIN_RACTOR)
    end

    # Threads of other Ractors share native threads.
    MAIN_RACTOR = Ractor.current
    private_constant :MAIN_RACTOR
  end
end
