# frozen_string_literal: true

module Memintro
  # Runs blocks in every child that Ruby forks, because threads and file names do not survive a fork.
  #
  # Ruby's own hook covers fork, IO.popen("-") and the like. Process.daemon does not call it on every version, so it has
  # its own hook; if both are called, the blocks run once. A fork by C code calls neither: code that must work there
  # checks the process id itself.
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
      # Not Process.pid, which Ruby caches: in a child that C code forked, it is the parent's.
      pid = Native.kernel_pid
      return if @pid == pid

      @pid = pid
      @works.each do |work|
        Native.untracked_enter
        work.call
      ensure
        Native.untracked_leave
      end
    end
  end
end
