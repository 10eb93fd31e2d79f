# frozen_string_literal: true

require_relative "../support/style"
require_relative "../support/table"
require_relative "../support/units"
require_relative "measurement_text"

module Memintro
  # The text of a comparison.
  # @api private
  class ComparisonText
    # The rows of the table, with the format of each figure.
    ROWS = {
      wall_ns: ["time", :time], cpu_ns: ["CPU time", :time], gc_count: ["GCs", :count], gc_time_ns: ["GC time", :time],
      allocated_bytes: ["bytes allocated", :bytes], allocations: ["allocations", :count],
      retained_bytes: ["bytes retained", :bytes], retained_blocks: ["blocks retained", :count],
      objects_allocated: ["objects made", :count], objects_retained: ["objects retained", :count]
    }.freeze
    # The words of the answer: a verb and a noun.
    ANSWERS = {
      allocated_bytes: %w[allocates bytes], objects_allocated: %w[makes objects], retained_bytes: %w[retains bytes]
    }.freeze
    private_constant :ROWS, :ANSWERS

    # @param comparison [Comparison]
    def initialize(comparison)
      @comparison = comparison
      @base, @first = comparison.sides.first
    end

    # @return [Array<String>] a sentence for each piece but the first
    def answers
      @comparison.sides.drop(1).map do |name, side|
        parts = ANSWERS.filter_map { |figure, (verb, noun)| amount(name, side, figure, verb, noun) } << time(name, side)
        "#{name} #{list(parts)}."
      end
    end

    # @return [Array<String>]
    def lines
      rows = ROWS.filter_map do |figure, (title, unit)|
        spreads = @comparison.sides.values.map { |side| side[figure] }
        [*spreads.map { |spread| spread ? shown(spread, unit) : "-" }, title] if spreads.any?
      end
      [*answers, "", *Table.new(@comparison.sides.keys.map(&:to_s), "", rows).lines(Style.new(false)).map(&:rstrip), "",
       "The medians of #{Units.counted(@comparison.rounds, 'round')}, in brackets the least and the most.",
       *@comparison.notes.map { |note| "note: #{note}" }]
    end

    private

    def amount(name, side, figure, verb, noun)
      one, base = side[figure], @first[figure]
      return unless one && base
      return "#{verb} as many #{noun} as #{@base}" if one.median == base.median
      return "#{verb} no #{noun} where #{@base} #{verb} #{plain(base.median, noun)}" if one.median.zero?
      return "#{verb} #{plain(one.median, noun)} where #{@base} #{verb} none" if base.median.zero?

      "#{verb} #{times(@comparison.ratio(name, figure))} as many #{noun} as #{@base}#{doubt(one, base)}"
    end

    def time(name, side)
      one, base = side.wall_ns, @first.wall_ns
      "takes #{times(@comparison.ratio(name, :wall_ns))} as long as #{@base}#{doubt(one, base)}"
    end

    # If the rounds of both overlap, they do not show which is more.
    def doubt(one, base)
      one.overlaps?(base) ? " (but rounds of both overlap)" : ""
    end

    def times(ratio)
      "#{format(ratio < 0.1 || (ratio - 1).abs < 0.1 ? '%.2f' : '%.1f', ratio)} times"
    end

    def plain(number, noun)
      noun == "bytes" ? Units.bytes(number.round) : Units.count(number.round)
    end

    def list(parts)
      parts.size > 1 ? "#{parts[0..-2].join(', ')}, and #{parts.last}" : parts.first
    end

    def shown(spread, unit)
      text = figure(spread.median, unit)
      spread.same? ? text : "#{text} (#{figure(spread.least, unit)} to #{figure(spread.most, unit)})"
    end

    def figure(number, unit)
      case unit
      when :time then MeasurementText.time(number)
      when :bytes then Units.bytes(number.round)
      else number.to_i == number ? Units.count(number.to_i) : number.round(1).to_s
      end
    end
  end
end
