# frozen_string_literal: true

require_relative "../../support/html_page"
require_relative "text"

module Memintro
  class Diff
    # What changed, as one page.
    class Html
      # @param diff [Diff]
      # @param top [Integer, nil] rows of each table; nil: all
      def initialize(diff, top: DEFAULT_TOP)
        @diff = diff
        @text = Text.new(diff, top: top)
      end

      # @return [String]
      def page
        HtmlPage.html(title: @text.header, heading: "What changed in #{Text.period(@diff)}",
                      facts: [@text.header, *@text.program], verdict: @text.verdict, notes: @diff.notes,
                      tables: @diff.sections.filter_map { |name, changes| section(name, changes) })
      end

      private

      def section(name, changes)
        rows, rest = @text.shown(name, changes)
        return if rows.empty?

        counted = rows.any?(&:count_growth)
        heads = ["", "growth", *("count" if counted), "before", "now", *("count now" if counted),
                 Sections::LAST.fetch(name, "counter")]
        HtmlPage.table(Sections::TITLES[name], heads, lines(name, rows, counted), rest)
      end

      # Bars of different units would compare bytes with milliseconds.
      def lines(name, rows, counted)
        widest = rows.map(&:unit).uniq.size == 1 ? rows.map { |change| change.growth.abs }.max : 0
        rows.map { |change| row(name, change, counted, widest) }
      end

      def row(name, change, counted, widest)
        cells = [bar(change, widest), cell(change.growth_text, change.growth)]
        cells << cell(change.count_growth_text.to_s) if counted
        cells << cell(change.before_text) << cell(change.after_text)
        cells << cell(change.count_after_text.to_s) if counted
        "<tr>#{cells.join}#{HtmlPage.name(change.name, @text.short(name, change.name))}</tr>"
      end

      def bar(change, widest)
        return "<td></td>" if widest.zero?

        HtmlPage.bar((100.0 * change.growth.abs / widest).round(1), change.growth)
      end

      def cell(text, growth = 0)
        HtmlPage.cell(text, growth)
      end
    end
  end
end
