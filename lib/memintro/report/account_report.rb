# frozen_string_literal: true

require_relative "../process/account"
require_relative "../support/names"
require_relative "../support/style"
require_relative "../support/units"

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
               else text(Style.for(io))
               end)
      nil
    end

    private

    def json
      head = { memintro_account: Account::LAYOUT, pid: @pid }.compact
      JsonText.dump({ **head, **@account.to_h }) << "\n"
    end

    def text(style)
      first, *rest = @account.to_s.lines(chomp: true).map { |line| Names.printable(line) }
      [style.bold(first), *rest].join("\n") << "\n"
    end

    def html
      rows = @account.rows.map do |row|
        [Units.bytes(row.bytes), Units.share(row.bytes, @account.rss), row.basis.to_s, row.name.to_s]
      end
      Native.page("Memory of #{@name || "process #{@pid || Process.pid}"}",
                  ["#{Units.bytes(@account.rss)} resident; allocator: #{@account.allocator}"],
                  @account.verdict, @account.notes, [["Rows", %w[bytes share basis row], rows]],
                  @account.rows.map { |row| [row.name.to_s, row.bytes] })
    end
  end
end
