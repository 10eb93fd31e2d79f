# frozen_string_literal: true

module Matrix
  # The closing table: Ruby x allocator x suite, and below it why examples failed or were skipped.
  class Summary
    HEADINGS = ["Ruby", "allocator", "suite", "passed", "failed", "skipped"].freeze

    # @param outcomes [Array<Outcome>]
    def initialize(outcomes)
      @outcomes = outcomes
    end

    # @return [String]
    def to_s
      rows = @outcomes.map { |o| [o.ruby, o.allocator, o.suite, o.passed.to_s, o.failed.to_s, o.skipped.to_s] }
      widths = [HEADINGS, *rows].transpose.map { |column| column.map(&:size).max }
      lines = [HEADINGS, widths.map { |width| "-" * width }, *rows].map { |row| line(row, widths) }
      "#{lines.join("\n")}\n#{notes}"
    end

    # @return [Boolean]
    def success? = @outcomes.sum(&:failed).zero?

    private

    def line(row, widths)
      cells = row.zip(widths).each_with_index.map { |(cell, width), i| i < 3 ? cell.ljust(width) : cell.rjust(width) }
      cells.join("  ")
    end

    # A reason that several rows share is printed once.
    def notes
      found = Hash.new { |hash, note| hash[note] = [] }
      @outcomes.each { |o| o.notes.each { |note| found[note] << "#{o.ruby} #{o.allocator} #{o.suite}" } }
      found.map { |note, rows| "\n#{note}\n  #{rows.join(', ')}" }.join
    end
  end
end
