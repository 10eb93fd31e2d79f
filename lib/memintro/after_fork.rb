# frozen_string_literal: true

module Memintro
  # Runs one piece of work in every child that Ruby forks: threads and file names do not survive a fork.
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

    # @yield in each child, with what it allocates untracked
    # @return [nil]
    def self.install(&work)
      @work = work
      @pid = Process.pid
      Process.singleton_class.prepend(Fork, Daemon)
      nil
    end

    # @api private
    def self.run
      return if @pid == Process.pid

      @pid = Process.pid
      Memintro.untracked(&@work)
    end
  end
end
