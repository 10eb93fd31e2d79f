# frozen_string_literal: true

require_relative "../process/account"
require_relative "../support/style"

module Memintro
  # An account as text, JSON or a page of its own: what `memintro account` prints.
  # @api private
  class AccountReport
    # Formats that {#write} knows.
    FORMATS = %i[text json html].freeze

    # @param account [Account]
    # @param name [String, nil] of the process, for a heading
    # @param pid [Integer, nil]
    def initialize(account, name: nil, pid: nil)
      @account = account
      @name = name
      @pid = pid
    end

    # @param io [#write]
    # @param format [Symbol] one of {FORMATS}
    # @param top [Integer, nil] ignored: an account has few rows
    # @return [nil]
    def write(io, format: :text, top: nil)
      _ = top
      io.write(case format
               when :json then json
               when :html then html
               else Native.account_text(@account.to_h, Style.colour?(io)) << "\n"
               end)
      nil
    end

    private

    def json
      head = { memintro_account: Account::LAYOUT, pid: @pid }.compact
      JsonText.dump({ **head, **@account.to_h }) << "\n"
    end

    def html
      Native.account_page(@account.to_h, (@name || "process #{@pid || Process.pid}").to_s)
    end
  end
end
