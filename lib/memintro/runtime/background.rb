# frozen_string_literal: true

require_relative "after_fork"
require_relative "deadlock"

module Memintro
  # A thread of memintro's own, for work beside the program.
  #
  # It leaves signals to the threads of the program, and its allocations are not tracked. In a forked child it is
  # started again: at once after a fork by Ruby and after Process.daemon. After a fork by C code it is not: Ruby cannot
  # run threads there (docs/control_socket.md). The process does not wait for it at its end. An error ends the thread
  # and is then in {#error}; nothing is printed, and Thread.abort_on_exception does not apply.
  #
  # It does not keep a program running. If all other threads wait without end ({Deadlock}), this thread ends, so that a
  # program that joins all threads can go on, and its work begins again in a new thread. If that does not help, Ruby may
  # detect its deadlock.
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
    # Tells the thread to end.
    class Stop
      # @param deadlock [Deadlock, nil] observations of the previous thread
      def initialize(deadlock = nil)
        @requested = false
        @deadlock = Deadlock.new(deadlock)
      end

      # @api private
      # @return [Deadlock]
      attr_reader :deadlock

      # @return [Boolean]
      def requested?
        @requested
      end

      # Sleeps, at most until a stop is requested. Does not return if the work is begun again in another thread.
      #
      # @param seconds [Numeric, nil] nil: without end
      # @return [Boolean] whether a stop is requested
      def wait(seconds = nil)
        due = seconds && (now + seconds)
        until @requested
          rest = due && (due - now)
          return @requested if rest && rest <= 0

          sleep([rest, Deadlock::BETWEEN].compact.min)
          @deadlock.reached? && give_way
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

      # Ruby checks for a deadlock at Thread.stop, unlike at sleep and at the end of a thread.
      def give_way
        throw(self) unless @deadlock.unchanged?
        Thread.stop
      end

      def now
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end
    end

    @running = []

    class << self
      # @param name [String] of the thread, at most 15 bytes of it are seen from outside
      # @yieldparam stop [Stop] run again, with a new one, in each forked child
      # @return [Background]
      # @raise [Error] if the system gives no thread, or in a child that C code forked
      # @raise [RactorError] in a Ractor other than the main one, which would take the thread along when it ends
      def start(name, &work)
        raise ArgumentError, "start needs a block: Background.start(name) { |stop| … }" unless work
        unless Ractor.current.equal?(Ractor.main)
          raise RactorError, "#{name} cannot be started in a Ractor; start it in the main one"
        end

        unless Native.threads_can_start
          raise Error, "#{name} cannot be started: C code forked this process, and Ruby cannot run threads in it; " \
                       "fork with Ruby's fork"
        end

        install
        background = new(name, work)
        @running += [background]
        background
      rescue ThreadError => e
        raise Error, "#{name} cannot be started: #{e.message}; end other threads, or raise the limit (ulimit -u, " \
                     "pids.max of the control group), and try again"
      end

      # Runs code of the program in this thread: with the usual signals, which processes started there inherit, and with
      # tracking of its allocations.
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
      # @return [Array<Thread>]
      def threads
        @running.map(&:started)
      end

      # @api private
      def refuse_signals
        # Threads that share native ones would pass the mask on to each other.
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
    # @api private
    # @return [Thread] dead where a fork has left it behind
    attr_reader :started
    # @return [Exception, nil] the error that ended it, unless {#stop} did
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
      @started.alive?
    end

    # @return [Thread]
    def thread
      revive
      @started
    end

    # Ends it: at once if it waits, otherwise after `patience` seconds.
    #
    # @param patience [Numeric] seconds after which the thread is killed
    # @return [nil]
    def stop(patience: 1)
      @stopped = true
      self.class.forget(self)
      return if @pid != Native.kernel_pid || @started == Thread.current

      @stop.request
      give_up = Process.clock_gettime(Process::CLOCK_MONOTONIC) + patience
      # A wake-up is lost if the thread is just about to sleep.
      until @started.join(0.002)
        break @started.kill if Process.clock_gettime(Process::CLOCK_MONOTONIC) > give_up

        @started.wakeup if @started.alive?
      end
      nil
    rescue ThreadError
      nil # it ended between question and wake-up
    ensure
      @stop.request
    end

    # Starts it again after a fork.
    # @api private
    # @return [nil]
    def revive
      return if @stopped || @error || @pid == Native.kernel_pid

      launch
      nil
    rescue ThreadError
      nil # a child without it is better than none
    end

    private

    # @raise [ThreadError] if the system gives no thread
    def launch(deadlock = nil)
      before = @pid
      Native.threads_can_start or raise ThreadError, "C code forked the process, and Ruby runs no threads then"
      @pid = Native.kernel_pid
      @stop = stop = Stop.new(deadlock)
      @started = Thread.new { run(stop) }
      @started.name = @name
      @started.report_on_exception = false
      @started.priority = 0
      # As in Control::Server#run.
      @started.thread_variable_set(:fork_safe, true)
      leave_group
    rescue ThreadError
      @pid = before # who next asks tries again
      raise
    end

    # A program that waits for the threads of its own group does not wait for this thread.
    def leave_group
      ThreadGroup::Default.add(@started) unless @started.group == ThreadGroup::Default
    rescue ThreadError
      nil # an enclosed group keeps it
    end

    def run(stop)
      Native.untracked_enter
      self.class.refuse_signals
      catch(stop) { return @work.call(stop) }
      launch(stop.deadlock) unless @stopped
    rescue StandardError, ScriptError, NoMemoryError, SystemStackError => e
      @error = e
    ensure
      stop.release
      # Ruby reuses the native thread for another thread.
      Native.accept_signals
      Native.untracked_leave
    end
  end
end
