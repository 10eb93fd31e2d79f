# frozen_string_literal: true

require_relative "json_text"
require_relative "names"

module Memintro
  # Pages that load nothing. All texts are escaped, and the page itself forbids requests.
  # @api private
  module HtmlPage
    # Characters with a meaning in HTML.
    ESCAPES = { "&" => "&amp;", "<" => "&lt;", ">" => "&gt;", "\"" => "&quot;", "'" => "&#39;" }.freeze
    private_constant :ESCAPES

    # @param title [String]
    # @param heading [String]
    # @param facts [Array<String>] lines below the heading
    # @param verdict [Array<String>] sentences that a reader needs first
    # @param notes [Array<String>] what to beware of
    # @param tables [Array<String>] HTML
    # @param areas [Array(String, Integer), nil] names and bytes of the rows of a treemap
    # @return [String]
    def self.html(title:, heading:, facts:, verdict:, notes:, tables:, areas: nil)
      map = "<svg id=\"areas\" viewBox=\"0 0 1000 420\" role=\"img\"></svg>" if areas
      Native.page([title, heading], facts, verdict, notes, [*map, *tables].join("\n"),
                  areas && JsonText.dump({ rows: areas }))
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

    # @param percent [Float] its length
    # @param growth [Numeric] what gives it a colour
    # @return [String] a cell with a bar
    def self.bar(percent, growth)
      "<td><svg class=\"bar\" viewBox=\"0 0 100 1\" preserveAspectRatio=\"none\"><rect width=\"#{percent}\" " \
        "height=\"1\"#{' class="down"' if growth.negative?}></rect></svg></td>"
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
  end
end
