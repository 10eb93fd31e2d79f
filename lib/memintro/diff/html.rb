# frozen_string_literal: true

require_relative "text"

module Memintro
  class Diff
    # What changed, as one page that fetches nothing: styles inline, no script. Every text in it is escaped, and the
    # page itself forbids whatever might slip through.
    class Html
      # What has a meaning in HTML.
      ESCAPES = { "&" => "&amp;", "<" => "&lt;", ">" => "&gt;", "\"" => "&quot;", "'" => "&#39;" }.freeze
      # The page's looks.
      STYLE = <<~CSS
        :root { color-scheme: light dark; --line: #d8dee4; --dim: #59636e; --up: #b4490f; --down: #1f7a3d; --bg: #fff;
          --fg: #1f2328; --soft: #f6f8fa }
        @media (prefers-color-scheme: dark) { :root { --line: #3d444d; --dim: #9198a1; --up: #f0883e; --down: #57ab5a;
          --bg: #0d1117; --fg: #e6edf3; --soft: #151b23 } }
        body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem;
          background: var(--bg); color: var(--fg) }
        h1 { font-size: 1.4rem; margin: 0 }
        h2 { font-size: 1.05rem; margin: 2rem 0 .4rem }
        p.facts { color: var(--dim); margin: .2rem 0 1rem }
        ul { background: var(--soft); border: 1px solid var(--line); border-radius: 6px; padding: .8rem 1rem .8rem 2rem }
        li { overflow-wrap: anywhere }
        li.note { color: var(--up) }
        table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
        th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap;
          vertical-align: top }
        th { color: var(--dim); font-weight: 600; font-size: .85rem }
        th:last-child, td:last-child { text-align: left; width: 100% }
        td:last-child { white-space: normal; overflow-wrap: anywhere; font: .85rem/1.75 ui-monospace, monospace }
        td.bar { min-width: 6rem; padding-right: 0 }
        td.bar i { display: block; height: .8rem; margin-top: .35rem; border-radius: 2px; background: var(--up) }
        td.bar i.down { background: var(--down) }
        td.up { color: var(--up) }
        td.down { color: var(--down) }
        tr td.more { color: var(--dim); font: inherit }
      CSS
      private_constant :ESCAPES, :STYLE

      # @param diff [Diff]
      # @param top [Integer, nil] rows of each table; nil: all
      def initialize(diff, top: DEFAULT_TOP)
        @diff = diff
        @text = Text.new(diff, top: top)
      end

      # @return [String]
      def page
        <<~HTML
          <!DOCTYPE html>
          <html lang="en">
          <head>
          <meta charset="utf-8">
          <meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
          <meta name="viewport" content="width=device-width, initial-scale=1">
          <title>#{escape(@text.header)}</title>
          <style>
          #{STYLE}</style>
          </head>
          <body>
          <h1>What changed in #{escape(@text.duration(@diff.seconds))}</h1>
          <p class="facts">#{escape(@text.header)}#{"<br>#{escape(@text.program)}" if @text.program}</p>
          <ul>
          #{sentences}
          </ul>
          #{@diff.sections.filter_map { |name, changes| section(name, changes) }.join("\n")}
          </body>
          </html>
        HTML
      end

      private

      def sentences
        [*@text.verdict.map { |line| "<li>#{escape(line)}</li>" },
         *@diff.notes.map { |line| "<li class=\"note\">#{escape(line)}</li>" }].join("\n")
      end

      def section(name, changes)
        rows, rest = @text.shown(name, changes)
        return if rows.empty?

        counted = rows.any?(&:count_growth)
        titles = ["", "growth", *("count" if counted), "before", "now", *("count now" if counted),
                  Sections::LAST.fetch(name, "counter")]
        more = rest && "<tr><td class=\"more\" colspan=\"#{titles.size}\">#{escape(rest)}</td></tr>"
        "<h2>#{escape(Sections::TITLES[name])}</h2>\n<table>\n" \
          "#{[heads(titles), *lines(name, rows, counted), *more].join("\n")}\n</table>"
      end

      def heads(titles)
        "<tr>#{titles.map { |title| "<th>#{escape(title)}</th>" }.join}</tr>"
      end

      # Bars of different units would compare bytes with milliseconds.
      def lines(name, rows, counted)
        widest = rows.map(&:unit).uniq.size == 1 ? rows.map { |change| change.growth.abs }.max : 0
        rows.map { |change| row(name, change, counted, widest) }
      end

      def row(name, change, counted, widest)
        cells = [bar(change, widest), cell(change.growth_text, change.growth)]
        cells << cell(change.count_growth ? Units.signed(change.count_growth, :count) : "") if counted
        cells << cell(Units.plain(change.before, change.unit)) << cell(Units.plain(change.after, change.unit))
        cells << cell(change.count_after ? Units.count(change.count_after) : "") if counted
        "<tr>#{cells.join}<td title=\"#{escape(change.name)}\">#{escape(@text.short(name, change.name))}</td></tr>"
      end

      def bar(change, widest)
        return "<td></td>" if widest.zero?

        percent = (100.0 * change.growth.abs / widest).round(1)
        "<td class=\"bar\"><i#{' class="down"' if change.growth.negative?} style=\"width:#{percent}%\"></i></td>"
      end

      def cell(text, growth = 0)
        direction = { 1 => " class=\"up\"", -1 => " class=\"down\"" }[growth <=> 0]
        "<td#{direction}>#{escape(text)}</td>"
      end

      def escape(text)
        Report::Names.printable(text).gsub(/[&<>"']/, ESCAPES)
      end
    end
  end
end
