# frozen_string_literal: true

module Memintro
  # Runs pieces of work in every child that Ruby forks: threads and file names do not survive a fork.
  #
  # Ruby's own hook covers fork, IO.popen("-") and the like. Process.daemon does not call it on every version, so it has
  # one of its own; where both come, the work is done once. A fork made by C code passes by both: what the work sets up
  # must look at the process id itself where that matters.
  module AfterFork
    # See Process._fork.
    module Fork
      # @api private
      def _fork
        pid = super
        AfterFork.run if pid.zero?
        pid
      end
    end

    # See Process.daemon.
    module Daemon
      # @api private
      def daemon(...)
        result = super
        AfterFork.run
        result
      end
    end

    @works = []

    # @yield in each child, with what it allocates untracked, after what was installed before
    # @return [nil]
    def self.install(&work)
      @works += [work]
      @pid = Native.kernel_pid
      Process.singleton_class.prepend(Fork, Daemon)
      nil
    end

    # @api private
    def self.run
      # Not Process.pid: Ruby's note of it is the parent's in a child that C code forked.
      pid = Native.kernel_pid
      return if @pid == pid

      @pid = pid
      @works.each { |work| Memintro.untracked(&work) }
    end
  end
end
