# frozen_string_literal: true

require_relative "../support/json_text"
require_relative "../support/names"
require_relative "../support/style"
require_relative "../support/table"
require_relative "../support/units"

module Memintro
  # Rows of name, count and bytes as a table or as JSON: what `memintro iseqs` and `memintro histogram` print.
  # @api private
  class HeapTable
    # Formats that {#write} knows.
    FORMATS = %i[text json].freeze

    # A table of instruction sequences.
    # @param groups [Array<#name, #count, #bytes>]
    # @param by [Symbol] `:path` or `:location`
    # @param pid [Integer, nil] of the process, for JSON
    # @return [HeapTable]
    def self.iseqs(groups, by: :path, pid: nil)
      new("instruction sequence", by == :path ? "file" : "line", groups, paths: true, pid: pid)
    end

    # A table of all objects.
    # @param rows [Array<#name, #count, #bytes>]
    # @param pid [Integer, nil] of the process, for JSON
    # @return [HeapTable]
    def self.classes(rows, pid: nil)
      new("object", "class", rows, paths: false, pid: pid)
    end

    # @param what [String] in the singular
    # @param column [String] what the names are
    # @param rows [Array<#name, #count, #bytes>] all of them, greatest first
    # @param paths [Boolean] whether the names are paths, to be shortened
    # @param pid [Integer, nil]
    def initialize(what, column, rows, paths:, pid:)
      @what = what
      @column = column
      @pid = pid
      @rows = rows
      @names = paths ? Names.new : nil
    end

    # @param io [#write]
    # @param format [Symbol] one of {FORMATS}
    # @param top [Integer, nil] nil: all
    # @return [nil]
    def write(io, format: :text, top: 20)
      rows = top ? @rows.first(top) : @rows
      io.write(format == :json ? json(rows) : text(rows, Style.for(io)))
      nil
    end

    private

    def json(rows)
      list = rows.map { |row| { name: row.name, count: row.count, bytes: row.bytes } }
      JsonText.dump({ pid: @pid, count: count, bytes: bytes, rows: list }.compact) << "\n"
    end

    def text(rows, style)
      cells = rows.map do |row|
        [Units.bytes(row.bytes), Units.share(row.bytes, bytes), Units.count(row.count), short(row.name)]
      end
      left = @rows.drop(rows.size)
      rest = left.empty? ? [] : ["", "#{Units.count(left.size)} more, #{Units.bytes(left.sum(&:bytes))}"]
      [style.bold("#{Units.counted(count, @what)}, #{Units.bytes(bytes)}, by #{@column}:"), "",
       *Table.new(%w[bytes share count], @column, cells).lines(style), *rest].join("\n") << "\n"
    end

    def short(name)
      @names ? @names.shortened(name) : Names.printable(name)
    end

    def count
      @rows.sum(&:count)
    end

    def bytes
      @rows.sum(&:bytes)
    end
  end
end
