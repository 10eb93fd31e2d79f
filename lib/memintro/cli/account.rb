# frozen_string_literal: true

require_relative "inspection"

module Memintro
  module CLI
    # `memintro account`: where the resident memory of a process is.
    class AccountOf < Inspection
      # What its help begins with.
      BANNER = <<~TEXT
        Usage: memintro account [options] PID|NAME…
               memintro account [options] -- CMD [ARGUMENTS]

        Shows where the resident memory of a process is: Ruby's heap, what malloc has in use and what it keeps,
        stacks, files. The rows add up to RSS. PID or NAME is a process that listens (memintro ps). Of any other
        PID, only the kernel's list of mappings is shown. With a CMD, shows each of its Ruby processes when it ends.
      TEXT
      # See {Inspection::FORMATS}.
      FORMATS = %w[text json html].freeze

      # @param words [Array<String>] PIDs and names
      # @return [Integer] the exit code
      def run(words)
        return super if @command

        require_relative "../../memintro"
        require_relative "../report/account_report"
        raise UsageError, "give a PID, or -- CMD (memintro account --help)" if words.empty?

        from_outside?(words) ? show_mappings(Integer(words.first, 10)) : inspect_live(words)
      rescue Memintro::AccountError, NoProcessError, ForbiddenError, ProcError => e
        raise Failure, e.message
      end

      private

      def name
        "account"
      end

      def default_top
        "all"
      end

      def from_outside?(words)
        return false unless words.size == 1 && !@workers && words.first.match?(/\A[1-9]\d{0,9}\z/)

        Control::Directory.new(users: users).find(words.first)
        false
      rescue ControlError
        true
      end

      def show_mappings(pid)
        check_file
        Memintro::Loader.need(:Account)
        put(AccountReport.new(Account::Mappings.of(pid), name: "process #{pid}", pid: pid))
        0
      end

      def inspect_all(listeners)
        over_all(listeners, apart: false) do |listener|
          asked = client(listener, @timeout || PATIENCE_SECONDS)
          answer = asked.ask_json("account", {})
          listener.called = asked.program
          account = Account.of_hash(answer)
          write_live(listener, AccountReport.new(account, name: who(listener), pid: listener.pid))
        end
      end
    end
  end
end
