# frozen_string_literal: true

require_relative "../../support/html_page"
require_relative "text"
require_relative "../../support/statistics"

module Memintro
  class Trend
    # What grows, as one page, with a curve for each figure.
    class Html
      # Width of a curve, in pixels that are scaled.
      WIDTH = 128
      # Height of a curve.
      HEIGHT = 24
      # Explains the curves.
      LEGEND = "Each course goes from its own lowest to its highest value; the dashed line is the slope (Theil-Sen)."
      private_constant :WIDTH, :HEIGHT, :LEGEND

      # @param trend [Trend]
      # @param top [Integer, nil] rows; nil: all
      def initialize(trend, top: DEFAULT_TOP)
        @trend = trend
        @text = Text.new(trend, top: top)
      end

      # @return [String]
      def page
        program = @trend.snapshots.last.process[:program]
        HtmlPage.html(title: @text.header, heading: "What grew in #{@text.duration}",
                      facts: [@text.header, *(program && Names.printable(program))],
                      verdict: ["#{@text.verdict}.", *(LEGEND unless @trend.series.empty?)], notes: @trend.notes,
                      tables: [*table])
      end

      private

      def table
        rows, rest = @text.shown
        return if rows.empty?

        title = @trend.growing.empty? ? "greater now than at first" : "what grows"
        HtmlPage.table(title, ["course", *Text::HEADS, Text::LAST], rows.map { |series| row(series) }, rest)
      end

      def row(series)
        slope, *others = @text.cells(series)
        cells = [HtmlPage.cell(slope, series.slope_per_minute), *others.map { |text| HtmlPage.cell(text) }]
        name = HtmlPage.name(series.name, @text.short(series))
        "<tr><td>#{course(series)}</td>#{cells.join}#{name}</tr>"
      end

      # The values from lowest to highest, a dot for the last one, and the slope as a dashed line.
      def course(series)
        low, high = series.values.minmax
        points = series.values.each_with_index.map { |value, i| "#{x(i)},#{y(value, low, high)}" }
        told = "from #{about(low, series)} to #{about(high, series)}"
        first, last = ends(series).map { |value| y(value, low, high) }
        "<svg class=\"course\" viewBox=\"0 0 #{WIDTH} #{HEIGHT}\" role=\"img\" aria-label=\"#{told}\">" \
          "<title>#{told}</title><line x1=\"#{x(0)}\" y1=\"#{first}\" x2=\"#{x(-1)}\" y2=\"#{last}\"></line>" \
          "<polyline points=\"#{points.join(' ')}\"></polyline>" \
          "<circle cx=\"#{x(-1)}\" cy=\"#{y(series.last, low, high)}\" r=\"2\"></circle></svg>"
      end

      def about(value, series)
        "#{'~' if series.estimated?}#{Units.plain(value, series.unit)}"
      end

      # Ends of the dashed line: as many values are above it as below.
      def ends(series)
        slope = series.slope_per_minute
        level = Statistics.median(@trend.minutes.zip(series.values).map { |minute, value| value - (slope * minute) })
        [level, level + (slope * @trend.minutes.last)]
      end

      # Snapshots of the same instant are drawn side by side.
      def x(index)
        minutes = @trend.minutes
        index %= minutes.size
        share = minutes.last.positive? ? minutes[index] / minutes.last : index.fdiv(minutes.size - 1)
        (2 + (share * (WIDTH - 4))).round(1)
      end

      # Only figures that are larger in the last snapshot are drawn, so high is above low.
      def y(value, low, high)
        (HEIGHT - 2 - ((value - low).fdiv(high - low) * (HEIGHT - 4))).round(1)
      end
    end
  end
end
