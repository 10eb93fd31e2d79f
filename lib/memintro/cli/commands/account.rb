# frozen_string_literal: true

require_relative "../copy_inspection"

module Memintro
  module CLI
    # `memintro account`: divides the resident memory of a process by its uses.
    class AccountCommand < CopyInspection
      # The name of the command.
      NAME = "account"
      # Its purpose, for the list of commands.
      SUMMARY = "show where the resident memory is: Ruby, malloc, fragmentation, stacks, files"
      # The beginning of its help.
      BANNER = <<~TEXT
        Usage: memintro account [options] PID|NAME…
               memintro account [options] -- CMD [ARGUMENTS]

        Shows where the resident memory of a process is: Ruby's heap, what malloc has in use and what it keeps,
        stacks, files. The rows add up to RSS. PID or NAME is a process that listens (memintro ps). For any other
        PID, only the kernel's list of mappings is shown. With a CMD, shows each of its Ruby processes when it ends.

        #{LongStop::TEXT}
      TEXT

      private

      def default_top
        "all"
      end

      def look(words)
        from_outside?(words) ? show_mappings(Integer(words.first, 10)) : super
      end

      def from_outside?(words)
        return false unless words.size == 1 && !@workers && words.first.match?(/\A[1-9]\d{0,9}\z/)

        nobody_listens?(Control::Directory.new(users: users).find(words.first).path)
      rescue ControlError
        true
      end

      # A process that became another program by exec has left its socket behind.
      def nobody_listens?(path)
        require "socket"
        socket = Socket.new(:UNIX, :STREAM)
        socket.connect_nonblock(Socket.sockaddr_un(path))
        false
      rescue Errno::ECONNREFUSED, Errno::ENOENT
        true
      rescue SystemCallError, ArgumentError
        false
      ensure
        socket&.close
      end

      def show_mappings(pid)
        check_file
        Memintro::Loader.need(:Account)
        put(AccountReport.new(Account::Mappings.of(pid), name: "process #{pid}", pid: pid))
        0
      end

      def report(answer, **process)
        AccountReport.new(Account.of_hash(answer), **process)
      end
    end
  end
end
