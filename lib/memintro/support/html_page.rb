# frozen_string_literal: true

require_relative "names"

module Memintro
  # The frame of pages that load nothing: inline styles, no script. All texts are escaped, and the page itself forbids
  # scripts and requests.
  # @api private
  module HtmlPage
    # Characters with a meaning in HTML.
    ESCAPES = { "&" => "&amp;", "<" => "&lt;", ">" => "&gt;", "\"" => "&quot;", "'" => "&#39;" }.freeze
    # The style of the page.
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
      td.spark { padding-bottom: 0 }
      svg { display: block; width: 8rem; height: 1.6rem }
      svg polyline { fill: none; stroke: var(--dim); stroke-width: 1.5; stroke-linejoin: round }
      svg line { stroke: var(--up); stroke-width: 1.5; stroke-dasharray: 4 3 }
      svg circle { fill: var(--dim) }
      tr td.more { color: var(--dim); font: inherit }
    CSS
    private_constant :ESCAPES, :STYLE

    # @param title [String]
    # @param heading [String]
    # @param facts [Array<String>] lines below the heading
    # @param verdict [Array<String>] sentences that a reader needs first
    # @param notes [Array<String>] what to beware of
    # @param tables [Array<String>] HTML
    # @return [String]
    def self.html(title:, heading:, facts:, verdict:, notes:, tables:)
      <<~HTML
        <!DOCTYPE html>
        <html lang="en">
        <head>
        <meta charset="utf-8">
        <meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
        <meta name="viewport" content="width=device-width, initial-scale=1">
        <title>#{escape(title)}</title>
        <style>
        #{STYLE}</style>
        </head>
        <body>
        <h1>#{escape(heading)}</h1>
        <p class="facts">#{facts.map { |fact| escape(fact) }.join('<br>')}</p>
        <ul>
        #{[*items(verdict), *items(notes, ' class="note"')].join("\n")}
        </ul>
        #{tables.join("\n")}
        </body>
        </html>
      HTML
    end

    # @param title [String]
    # @param heads [Array<String>] of the columns
    # @param rows [Array<String>] HTML, a `tr` each
    # @param rest [String, nil] what is not shown
    # @return [String]
    def self.table(title, heads, rows, rest)
      more = rest && "<tr><td class=\"more\" colspan=\"#{heads.size}\">#{escape(rest)}</td></tr>"
      first = "<tr>#{heads.map { |head| "<th>#{escape(head)}</th>" }.join}</tr>"
      "<h2>#{escape(title)}</h2>\n<table>\n#{[first, *rows, *more].join("\n")}\n</table>"
    end

    # @param text [String]
    # @param growth [Numeric] what gives it a colour
    # @return [String]
    def self.cell(text, growth = 0)
      direction = { 1 => " class=\"up\"", -1 => " class=\"down\"" }[growth <=> 0]
      "<td#{direction}>#{escape(text)}</td>"
    end

    # The last cell of a row.
    # @param name [String] whole
    # @param short [String] what is shown of it
    # @return [String]
    def self.name(name, short)
      "<td title=\"#{escape(name)}\">#{escape(short)}</td>"
    end

    # @param text [String]
    # @return [String] printable, and harmless between tags and in attributes
    def self.escape(text)
      Names.printable(text).gsub(/[&<>"']/, ESCAPES)
    end

    def self.items(sentences, attributes = "")
      sentences.map { |sentence| "<li#{attributes}>#{escape(sentence)}</li>" }
    end
    private_class_method :items
  end
end
