# frozen_string_literal: true

require_relative "../support/json_text"
require_relative "../support/style"

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
    # @param column [String] heading of the names
    # @param rows [Array<#name, #count, #bytes>] all of them, greatest first
    # @param paths [Boolean] whether the names are paths, to be shortened
    # @param pid [Integer, nil]
    def initialize(what, column, rows, paths:, pid:)
      @what = what
      @column = column
      @pid = pid
      @rows = rows
      @paths = paths
    end

    # @param io [#write]
    # @param format [Symbol] one of {FORMATS}
    # @param top [Integer, nil] nil: all
    # @return [nil]
    def write(io, format: :text, top: 20)
      io.write(format == :json ? json(top) : text(top, Style.colour?(io)))
      nil
    end

    private

    def json(top)
      rows = top ? @rows.first(top) : @rows
      list = rows.map { |row| { name: row.name, count: row.count, bytes: row.bytes } }
      JsonText.dump({ pid: @pid, count: count, bytes: bytes, rows: list }.compact) << "\n"
    end

    def text(top, colour)
      Native.heap_table(@what, @column, @paths, @rows.map { |row| [row.name, row.count, row.bytes] }, top, colour)
    end

    def count
      @rows.sum(&:count)
    end

    def bytes
      @rows.sum(&:bytes)
    end
  end
end
