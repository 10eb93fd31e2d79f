# frozen_string_literal: true

require_relative "../support/arguments"
require_relative "../runtime/background"
require_relative "../support/warn_once"
require_relative "../support/list"
require_relative "../support/untracked_text"

module Memintro
  # Takes samples of this process at an interval, in a thread of its own, and keeps them. One day at 2 s takes at most
  # 300 kB (450 kB in sampled mode, with standard errors). Ten days take no more, because older points are merged into
  # least, mean and greatest.
  #
  # At 2 s it takes about 0.01% of a core. It also runs in a forked child, and after Process.daemon, with an empty
  # history. It takes no signal from the program, and does not keep it from ending. A sample that fails, for example
  # while the process has no free descriptor, is left out, counted in {#errors} and reported once on standard error.
  #
  # @example
  #   sampler = Memintro::RSSSampler.new.start
  #   sampler.on_sample { |sample| statsd.gauge("rss", sample.rss) }
  #   sampler.points.map { |point| point[:rss].max }.max
  class RSSSampler
    # These files open this class, which `autoload` loads.
    require_relative "rss_sampler/point"
    require_relative "rss_sampler/ring"
    require_relative "rss_sampler/sample"

    include WarnOnce
    prepend UntrackedText

    # Name of the thread.
    THREAD_NAME = "memintro-sampler"

    # @return [Numeric] seconds
    attr_reader :interval
    # @return [Sample, nil] the newest in this process
    attr_reader :latest
    # @return [Integer] samples that could not be had in time, in this process
    attr_reader :errors
    # @return [Integer] how often a callback has failed
    attr_reader :callback_errors
    # @return [Exception, nil] how a sample or a callback failed the last time
    attr_reader :last_error

    # @param interval [Numeric] seconds between samples, at least 0.01
    # @param pss [Boolean] include {ProcessFigures#pss} in each, at its cost
    # @raise [ArgumentError, TypeError]
    # @raise [RactorError] in a Ractor other than the main one
    def initialize(interval: 2, pss: false)
      unless Ractor.current.equal?(Ractor.main)
        raise RactorError, "a sampler can be made only in the main Ractor; make it there, and ask Memintro.rss and " \
                           "the like in others"
      end

      check(interval) unless Brake.on?
      @interval = interval
      @pss = pss ? true : false
      @callbacks = [].freeze
      @callback_errors = 0
      @lock = Mutex.new
      begin_process
    end

    # Takes the first sample at once. Does nothing if it already runs, or under `MEMINTRO_DISABLE`.
    # @return [self]
    # @raise [Error] if the system gives no thread
    # @example What was missed
    #   sampler.errors       # => 3
    #   sampler.last_error   # => #<Memintro::ProcError: /proc/self/statm cannot be read: …>
    def start
      return self if Brake.holds?

      @background = Background.start(THREAD_NAME) { |stop| run(stop) } unless running?
      self
    end

    # Ends the thread at once. The samples stay readable.
    # @return [self]
    def stop
      @background&.stop
      @background = nil
      self
    end

    # @return [Boolean]
    def running?
      @background ? @background.alive? : false
    end

    # Calls the block with each sample, in the thread of the sampler. A block that raises is called again with the next
    # sample; see {#callback_errors}. `exit` ends the program, as in any other thread.
    #
    # @yieldparam sample [Sample]
    # @return [self]
    def on_sample(&callback)
      raise ArgumentError, "on_sample needs a block: sampler.on_sample { |sample| … }" unless callback

      @callbacks = [*@callbacks, callback].freeze
      self
    end

    # Takes a sample now, in addition to those at the interval. Costs about 20 µs; with pss, also the cost of pss. In a
    # trap handler the sample is returned but not kept.
    #
    # @param pss [Boolean]
    # @return [Sample]
    # @raise [ProcError] without /proc, or without a descriptor to read it by
    def take(pss: @pss)
      Memintro.untracked do
        begin_process if @pid != Native.kernel_pid
        sample = read_sample(pss)
        keep(sample)
        @latest = sample
      end
    end

    # Returns the samples of this process: the newest ones one by one, older ones merged. Costs 5 to 10 ms for a day.
    # @return [List<Point>] oldest first
    def points
      Memintro.untracked do
        begin_process if @pid != Native.kernel_pid
        running?
        List.new(@ring.points.map { |row| Point.new(row) })
      end
    end

    # @return [String] one short line
    def inspect
      "#<#{self.class} every #{@interval} s, #{running? ? 'running' : 'stopped'}#{", #{@latest.inspect}" if @latest}>"
    end
    alias to_s inspect

    private

    def check(interval)
      unless interval.is_a?(Integer) || interval.is_a?(Float) || interval.is_a?(Rational)
        raise TypeError, "interval is #{Arguments.shown(interval)}; it must be a number of seconds"
      end
      return if interval >= 0.01 && interval <= Arguments::MOST_SECONDS

      raise ArgumentError, "interval is #{Arguments.shown(interval)}; it must be at least 0.01 seconds, " \
                           "and at most #{Arguments::MOST_SECONDS}"
    end

    def begin_process
      @pid = Native.kernel_pid
      @ring = Ring.new
      @latest = nil
      @errors = 0
    end

    def run(stop)
      due = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      loop do
        attempt
        now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        # If the machine slept, or a callback took long, the samples of that time are not taken later.
        due = [due + @interval, now].max
        break if stop.wait(due - now)
      end
    end

    # A failure may be temporary, so the thread goes on.
    def attempt
      tell(take)
    rescue StandardError, ScriptError, NoMemoryError, SystemStackError => e
      @errors += 1
      @last_error = e
      warn_once("a sample is missing, and perhaps others: #{e.class}: #{e.message}")
    end

    def read_sample(pss)
      totals = Memintro.totals if Memintro.tracking?
      Sample.new(Process.clock_gettime(Process::CLOCK_REALTIME), Native.rss, pss ? Native.pss : nil,
                 GC.stat(:heap_live_slots), totals&.live_bytes, GC.total_time,
                 error: totals&.estimated? ? totals.live_bytes_standard_error : nil)
    end

    def keep(sample)
      values = Sample::FIGURES.map { |name| sample.public_send(name) }
      error = sample.estimated? ? sample.malloc_live_bytes_standard_error.ceil : nil
      @lock.synchronize { @ring.add(sample.time, values, error) }
    rescue ThreadError
      nil # in a trap handler no lock can be had
    end

    def tell(sample)
      callbacks = @callbacks
      return if callbacks.empty?

      Background.visible do
        callbacks.each do |callback|
          callback.call(sample)
        rescue SystemExit
          raise
        rescue Exception => e # rubocop:disable Lint/RescueException -- who would notice that the thread has ended?
          @callback_errors += 1
          @last_error = e
        end
      end
    end
  end
end
