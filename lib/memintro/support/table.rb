# frozen_string_literal: true

module Memintro
  # Lines up columns of figures, right-aligned, before one column of names that may be of any length.
  class Table
    # The gap between columns.
    GAP = "  "
    private_constant :GAP

    # @param titles [Array<String>] of the figures
    # @param last [String] title of the names
    # @param rows [Array<Array<String>>] figures and, last, the name
    def initialize(titles, last, rows)
      @titles = titles
      @last = last
      @rows = rows
    end

    # @param style [Style]
    # @return [Array<String>]
    def lines(style)
      widths = @titles.each_index.map { |i| [@titles[i].size, *@rows.map { |row| row[i].size }].max }
      [style.dim(line([*@titles, @last], widths)), *@rows.map { |row| line(row, widths) }]
    end

    private

    def line(cells, widths)
      [*widths.each_with_index.map { |width, i| cells[i].rjust(width) }, cells.last].join(GAP)
    end
  end
end
