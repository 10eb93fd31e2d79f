# frozen_string_literal: true

require_relative "after_fork"
require_relative "deadlock"

module Memintro
  # A thread of memintro's own, for what has to be done beside the program.
  #
  # It leaves signals to the program's threads, and what it allocates is in no figure. It is there again in a forked
  # child: at once after a fork by Ruby and after Process.daemon, and when somebody next asks for it ({#alive?},
  # {#thread}) after a fork by C code. The end of the process does not wait for it. An error ends it and is in {#error}
  # then; nothing is printed, and Thread.abort_on_exception does not apply.
  #
  # It keeps no program going. Where all other threads wait without end ({Deadlock}), it ends for who may join all
  # threads, with the work begun anew in another one; and where that changes nothing, Ruby is let find its deadlock.
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
      # @param deadlock [Deadlock, nil] what the thread before has seen
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

      # Sleeps, but not longer than until a stop is requested. Does not return where the work is begun anew.
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

      # Thread.stop is what Ruby looks for a deadlock at, unlike sleep and the end of a thread.
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
      # @raise [Error] if the system gives no thread
      # @raise [RactorError] in a Ractor other than the main one, which would take the thread along when it ends
      def start(name, &work)
        raise ArgumentError, "start needs a block: Background.start(name) { |stop| … }" unless work
        unless Ractor.current == Loader::MAIN_RACTOR
          raise RactorError, "#{name} cannot be started in a Ractor; start it in the main one"
        end

        install
        background = new(name, work)
        @running += [background]
        background
      rescue ThreadError => e
        raise Error, "#{name} cannot be started: #{e.message}; end other threads, or raise the limit (ulimit -u, " \
                     "pids.max of the control group), and try again"
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
      # @return [Array<Thread>]
      def threads
        @running.map(&:started)
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
    # @api private
    # @return [Thread] dead where a fork has left it behind
    attr_reader :started
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
      @started.alive?
    end

    # @return [Thread]
    def thread
      revive
      @started
    end

    # Ends it: at once if it waits as it should, else when its patience is over.
    #
    # @param patience [Numeric] seconds after which the thread is killed
    # @return [nil]
    def stop(patience: 1)
      @stopped = true
      self.class.forget(self)
      return if @pid != Native.kernel_pid || @started == Thread.current

      @stop.request
      give_up = Process.clock_gettime(Process::CLOCK_MONOTONIC) + patience
      # One wake-up is lost where the thread is just about to sleep.
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

    # Starts it again where a fork has left it behind.
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
      @pid = Native.kernel_pid
      @stop = stop = Stop.new(deadlock)
      @started = Thread.new { run(stop) }
      @started.name = @name
      @started.report_on_exception = false
      @started.priority = 0
      leave_group
    rescue ThreadError
      @pid = before # who next asks tries again
      raise
    end

    # A program that waits for the threads of its own group does not wait for ours.
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
      # Ruby lends the native thread to the next one.
      Native.accept_signals
      Native.untracked_leave
    end
  end
end
