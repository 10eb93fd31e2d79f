# frozen_string_literal: true

module Memintro
  module Control
    # Whether a process is there, asked of the kernel with a signal that is never sent. /proc may be missing, as in a
    # small container, or hide others' processes (hidepid): that something is not in it proves nothing.
    module Liveness
      # Greatest process id that Linux hands out.
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

      # What is said where /proc would have had more to say.
      BLIND = "/proc does not exist here, so memintro cannot see parents, memory and states of other processes"

      # A process id of 0 would mean a whole group.
      def self.signal(pid)
        return :gone unless pid.between?(1, MOST_PID)

        Process.kill(0, pid)
        :there
      rescue Errno::ESRCH
        :gone
      rescue Errno::EPERM
        :foreign
      end
      private_class_method :signal
    end
  end
end
