# frozen_string_literal: true

module Memintro
  module Control
    # Whether a process exists. Asks the kernel by `kill` with signal 0, because /proc may be missing, as in a small
    # container, or hide the processes of other users (hidepid).
    module Liveness
      # Largest process id of Linux.
      MOST_PID = 2**22

      # @param pid [Integer]
      # @return [Boolean] whether there is surely no such process
      def self.gone?(pid)
        signal(pid) == :gone
      end

      # @param pid [Integer]
      # @return [Boolean] whether it is there, and another user's
      def self.foreign?(pid)
        signal(pid) == :foreign
      end

      # @return [Boolean] whether /proc is there
      def self.proc?
        File.exist?("/proc/self/stat")
      end

      # The note if /proc is missing.
      BLIND = "/proc does not exist here, so memintro cannot see parents, memory and states of other processes"

      # Signal 0 to process id 0 would mean a whole group, so it is excluded.
      def self.signal(pid)
        return :gone unless pid.between?(1, MOST_PID)

        Process.kill(0, pid)
        :there
      rescue Errno::ESRCH
        :gone
      rescue Errno::EPERM
        :foreign
      rescue Errno::ENOSYS
        :there # a filter of system calls refuses the question
      end
      private_class_method :signal
    end
  end
end
