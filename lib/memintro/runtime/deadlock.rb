# frozen_string_literal: true

module Memintro
  # Notices that only memintro's own threads keep a program running: every other thread waits for another one without
  # end, and none has run for a while. Without memintro's threads, Ruby would raise "No live threads left. Deadlock?",
  # and a program that joins all threads of Thread.list would not wait for ours.
  #
  # @api private
  class Deadlock
    # Number of checks in a row with the same result.
    CHECKS = 3
    # Least seconds between two checks.
    BETWEEN = 0.5
    # Not the thread's own method, which a program may redefine.
    TO_S = Thread.instance_method(:to_s)
    private_constant :TO_S

    # @param former [Deadlock, nil] one that was reached
    def initialize(former = nil)
      @former = former&.seen
      @same = 0
      @due = 0
    end

    # @return [Boolean] to be asked every {BETWEEN} seconds, or more often
    def reached?
      now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      return false if now < @due

      @due = now + BETWEEN
      seen = sleep_counts
      @same = seen && seen == @seen ? @same + 1 : 0
      @seen = seen
      @same >= CHECKS - 1
    end

    # @return [Boolean] whether it is the former one still
    def unchanged?
      @seen == @former
    end

    # @api private
    # @return [Array, nil] the last observation
    attr_reader :seen

    private

    # A thread that was woken has the state of a sleeping one until it runs, so the number of its sleeps is compared.
    #
    # @return [Array, nil] how often each thread has gone to sleep; nil if one is up, or waits for a Ractor
    def sleep_counts
      return if Ractor.count > 1

      threads = Thread.list - Background.threads
      return unless threads.all? { |thread| TO_S.bind_call(thread).end_with?("sleep_forever>") }

      threads.map { |thread| sleeps(thread.native_thread_id) }
    rescue SystemCallError
      nil # no /proc, or a thread has just ended
    end

    def sleeps(id)
      [id, File.binread("/proc/self/task/#{id}/status")[/^voluntary_ctxt_switches:.*/] || raise(Errno::ENOENT)]
    end
  end
end
