# frozen_string_literal: true

require_relative "units"
require_relative "untracked_text"

module Memintro
  # Rows of figures in their order: a frozen Array that does not flood a console. `first`, `select`, `sum`, `to_h` and
  # all other methods are Array's own. Every row has a `to_h`.
  #
  # @example
  #   Memintro.top.sum(&:live_bytes)
  #   Memintro.histogram.to_h { |row| [row.name, row.bytes] }
  class List < Array
    prepend UntrackedText

    # Most rows that {#inspect} shows.
    SHOWN_ROWS = 50
    # Most bytes of rows that {#inspect} shows. They must fit into a datagram, a log line or a terminal.
    SHOWN_BYTES = 8_000
    # Most characters of one row in {#inspect}.
    SHOWN_WIDTH = 400
    private_constant :SHOWN_ROWS, :SHOWN_BYTES, :SHOWN_WIDTH

    # @api private
    # @param rows [Array]
    def initialize(rows = [])
      super
      freeze
    end

    # The first rows, one in each line, and the number of further rows. Never much over 8 kB, however long the list
    # is.
    #
    # @return [String]
    def inspect
      shown = shown_rows
      return "#<#{self.class} empty>" if shown.empty?

      rest = size - shown.size
      shown << "  and #{Units.count(rest)} more" if rest.positive?
      "#<#{self.class} #{Units.count(size)} row#{'s' if size > 1}:\n#{shown.join("\n")}>"
    end
    alias to_s inspect

    # `pp` and irb show the same.
    # @api private
    def pretty_print(printer)
      printer.text(inspect)
    end

    private

    def shown_rows
      bytes = 0
      first(SHOWN_ROWS).map { |row| "  #{shortened(row.inspect)}" }.take_while do |line|
        bytes += line.bytesize + 1
        bytes <= SHOWN_BYTES
      end
    end

    def shortened(text)
      text.size > SHOWN_WIDTH ? "#{text[0, SHOWN_WIDTH - 3]}..." : text
    end
  end
end
