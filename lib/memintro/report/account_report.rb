# frozen_string_literal: true

require_relative "../process/account"
require_relative "../support/html_page"
require_relative "../support/names"
require_relative "../support/style"
require_relative "../support/units"

module Memintro
  # An account as text, JSON or a page of its own: what `memintro account` prints.
  # @api private
  class AccountReport
    # Formats that {#write} knows.
    FORMATS = %i[text json html].freeze
    # Size of the treemap, in its own units.
    WIDTH = 1000
    HEIGHT = 420
    # Colours of the rows, in the order of {Account::NAMES}.
    COLOURS = %w[#2f7d4f #8fc7a3 #3f6fb5 #6f93cc #9fb6dd #c0562b #e0a33a #7a5aa8 #8a8f98 #b04f7f #4a9aa0 #c9c9c9].freeze
    private_constant :WIDTH, :HEIGHT, :COLOURS

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
        cells = [Units.bytes(row.bytes), Units.share(row.bytes, @account.rss), row.basis.to_s]
        "<tr>#{cells.map { |cell| HtmlPage.cell(cell) }.join}#{HtmlPage.name(row.name.to_s, row.name.to_s)}</tr>"
      end
      title = "Memory of #{@name || "process #{@pid || Process.pid}"}"
      HtmlPage.html(title: title, heading: title, verdict: @account.verdict, notes: @account.notes,
                    facts: ["#{Units.bytes(@account.rss)} resident; allocator: #{@account.allocator}"],
                    tables: [treemap, HtmlPage.table("Rows", %w[bytes share basis row], rows, nil)])
    end

    # Each rectangle has the area of its row's share.
    def treemap
      rows = @account.rows.zip(COLOURS).select { |row, _| row.bytes.positive? }.sort_by { |row, _| -row.bytes }
      boxes = split(rows, 0.0, 0.0, WIDTH.to_f, HEIGHT.to_f).map { |box| rectangle(*box) }
      "<svg viewBox=\"0 0 #{WIDTH} #{HEIGHT}\" role=\"img\" style=\"width:100%;height:auto\">#{boxes.join}</svg>"
    end

    # Halves the sum of the rows, and the longer side of their rectangle, until each row has its own.
    def split(rows, left, top, width, height)
      return rows.map { |row, colour| [row, colour, left, top, width, height] } if rows.size < 2

      all = rows.sum { |row, _| row.bytes }
      sum = 0
      count = rows.take_while { |row, _| (sum += row.bytes) * 2 <= all }.size.clamp(1, rows.size - 1)
      first, second = rows.take(count), rows.drop(count)
      share = first.sum { |row, _| row.bytes }.fdiv(all)
      if width >= height
        split(first, left, top, width * share, height) +
          split(second, left + (width * share), top, width * (1 - share), height)
      else
        split(first, left, top, width, height * share) +
          split(second, left, top + (height * share), width, height * (1 - share))
      end
    end

    def rectangle(row, colour, left, top, width, height)
      text = "#{row.name} #{Units.bytes(row.bytes)}"
      label = if width > text.size * 8 && height > 18
                "<text x=\"#{(left + 6).round(1)}\" y=\"#{(top + 16).round(1)}\" fill=\"#fff\" font-size=\"13\">" \
                  "#{HtmlPage.escape(text)}</text>"
              end
      "<rect x=\"#{left.round(1)}\" y=\"#{top.round(1)}\" width=\"#{width.round(1)}\" height=\"#{height.round(1)}\" " \
        "fill=\"#{colour}\" stroke=\"#fff\"><title>#{HtmlPage.escape(text)}</title></rect>#{label}"
    end
  end
end
