# frozen_string_literal: true

require_relative "../../error"

module Memintro
  class Account
    # An account of a process from outside: what the kernel says of its mappings.
    # @api private
    module Mappings
      # @param pid [Integer]
      # @return [Account]
      # @raise [NoProcessError, ForbiddenError, ProcError]
      def self.of(pid)
        found = Native.account_of_mappings(File.binread("/proc/#{pid}/smaps"))
        # The kernel lists nothing of a process that has ended and not been waited for, and of its own threads.
        raise NoProcessError, "process #{pid} has no memory: it has ended, or is the kernel's own" if found.nil?

        Account.of_hash(found)
      rescue Errno::ENOENT, Errno::ESRCH
        raise NoProcessError, "there is no process #{pid}" if File.directory?("/proc/self")

        raise ProcError
      rescue Errno::EACCES, Errno::EPERM
        raise ForbiddenError, "/proc/#{pid}/smaps belongs to another user; ask as that user, or as root"
      end
    end
  end
end
