# frozen_string_literal: true

module Memintro
  # How a frozen copy of the process ended that had not done its work, in words.
  # @api private
  module CopyEnd
    KILLED = Signal.list.fetch("KILL")
    LATE = Signal.list.fetch("ALRM")
    private_constant :KILLED, :LATE

    # @param signal [Integer] that ended it, or 0
    # @return [Boolean] whether it was a fault of the copy's own, so that another copy may do better
    def self.crash?(signal) = ![0, KILLED, LATE].include?(signal)

    # @param signal [Integer]
    # @return [String] `crashed (SIGSEGV)`
    def self.said(signal)
      case signal
      when 0 then "ended: a limit of the process or the machine's memory left it none"
      when KILLED then "was ended from outside (SIGKILL), as the kernel does when memory runs out"
      when LATE then "took too long (SIGALRM)"
      else "crashed (SIG#{Signal.signame(signal) || signal})"
      end
    end
  end
end
