# frozen_string_literal: true

require_relative "after_fork"

module Memintro
  # A thread of memintro's own, for what has to be done beside the program.
  #
  # It leaves signals to the program's threads, and what it allocates is in no figure. It is there again in a forked
  # child: at once after a fork by Ruby and after Process.daemon, and when somebody next asks for it ({#alive?},
  # {#thread}) after a fork by C code. The end of the process does not wait for it. An error ends it and is in {#error}
  # then; nothing is printed, and Thread.abort_on_exception does not apply.
  #
  # @api private
  # @example
  #   background = Background.start("memintro-log") do |stop|
  #     until stop.wait(60)
  #       line = summary
  #       Background.visible { logger.info(line) }
  #     end
  #   end
  #   background.stop
  class Background
    # How the thread learns that it shall end.
    class Stop
      def initialize
        @requested = false
      end

      # @return [Boolean]
      def requested?
        @requested
      end

      # Sleeps, but not longer than until a stop is requested.
      #
      # @param seconds [Numeric, nil] nil: without end
      # @return [Boolean] whether a stop is requested
      def wait(seconds = nil)
        due = seconds && (now + seconds)
        until @requested
          rest = due && (due - now)
          return @requested if rest && rest <= 0

          rest ? sleep(rest) : sleep
        end
        true
      end

      # For a thread that waits for other input too.
      #
      # @return [IO] becomes readable when a stop is requested; closed when the thread ends
      def io
        return @reader if @reader

        @reader, @writer = IO.pipe
        @writer.close if @requested
        @reader
      end

      # @api private
      def request
        @requested = true
        @writer&.close
      end

      # @api private
      def release
        @writer&.close
        @reader&.close
      end

      private

      def now
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end
    end

    @running = []

    class << self
      # @param name [String] of the thread, at most 15 bytes of it are seen from outside
      # @yieldparam stop [Stop] run again, with a new one, in each forked child
      # @return [Background]
      # @raise [UnsupportedError] in a Ractor other than the main one, which would take the thread along when it ends
      def start(name, &work)
        raise ArgumentError, "start needs a block: Background.start(name) { |stop| … }" unless work
        unless Ractor.current == Loading::MAIN_RACTOR
          raise UnsupportedError, "#{name} cannot be started in a Ractor; start it in the main one"
        end

        install
        background = new(name, work)
        @running += [background]
        background
      end

      # Runs the program's own code in our thread: with signals as elsewhere, which processes started there inherit, and
      # with what it allocates in the figures.
      #
      # @return [Object] the block's value
      def visible
        Native.accept_signals
        Native.untracked_leave
        yield
      ensure
        Native.untracked_enter
        refuse_signals
      end

      # @api private
      def refuse_signals
        # Threads that share native ones would hand the mask on to each other.
        Native.refuse_signals unless ENV["RUBY_MN_THREADS"] == "1"
      end

      # @api private
      def forget(background)
        @running -= [background]
      end

      private

      def install
        return if @installed

        @installed = true
        AfterFork.install { @running.each(&:revive) }
      end
    end

    # @return [String]
    attr_reader :name
    # @return [Exception, nil] what ended it, if not {#stop}
    attr_reader :error

    # @api private
    def initialize(name, work)
      @name = name
      @work = work
      @stopped = false
      launch
    end

    # @return [Boolean] whether it is at work in this process
    def alive?
      revive
      @thread.alive?
    end

    # @return [Thread]
    def thread
      revive
      @thread
    end

    # Ends it: at once if it waits as it should, else when its patience is over.
    #
    # @param patience [Numeric] seconds after which the thread is killed
    # @return [nil]
    def stop(patience: 1)
      @stopped = true
      self.class.forget(self)
      return if @pid != Native.kernel_pid || @thread == Thread.current

      @stop.request
      give_up = Process.clock_gettime(Process::CLOCK_MONOTONIC) + patience
      # One wake-up is lost where the thread is just about to sleep.
      until @thread.join(0.002)
        break @thread.kill if Process.clock_gettime(Process::CLOCK_MONOTONIC) > give_up

        @thread.wakeup if @thread.alive?
      end
      nil
    rescue ThreadError
      nil # it ended between question and wake-up
    ensure
      @stop.request
    end

    # Starts it again where a fork has left it behind.
    # @api private
    # @return [nil]
    def revive
      return if @stopped || @error || @pid == Native.kernel_pid

      launch
      nil
    end

    private

    def launch
      @pid = Native.kernel_pid
      @stop = stop = Stop.new
      @thread = Thread.new { run(stop) }
      @thread.name = @name
      @thread.report_on_exception = false
      @thread.priority = 0
      # A program that waits for the threads of its own group does not wait for ours.
      ThreadGroup::Default.add(@thread) unless @thread.group == ThreadGroup::Default
    rescue ThreadError
      nil # an enclosed group keeps it
    end

    def run(stop)
      Native.untracked_enter
      self.class.refuse_signals
      @work.call(stop)
    rescue StandardError, ScriptError, NoMemoryError, SystemStackError => e
      @error = e
    ensure
      stop.release
      # Ruby lends the native thread to the next one.
      Native.accept_signals
      Native.untracked_leave
    end
  end
end
