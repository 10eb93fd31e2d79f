# frozen_string_literal: true

require_relative "../support/html_page"
require_relative "flame_data"

module Memintro
  module Report
    # The report as a page with a flame graph: one file that loads nothing else. The script and the style stand beside
    # this file; the page's Content-Security-Policy names their hashes, so that nothing else in the page can run.
    class Html
      # Read when this file is loaded: the program may leave the folders of memintro before it reports.
      PARTS = %w[page.html page.css graph.js page.js].to_h do |name|
        [name, File.read(File.join(__dir__, "html", name), encoding: "UTF-8").freeze]
      end.freeze
      # What stands between the tags.
      STYLE = "\n#{PARTS['page.css']}".freeze
      # In two files, to be read.
      SCRIPT = "\n#{PARTS['graph.js']}#{PARTS['page.js']}".freeze
      # Name of the frame that has the stacks beyond `top`.
      REST = "(%s)"
      # What to do where there are no stacks.
      FLAT = "Each line stands alone. With stack_depth: 16 (--stack-depth 16) its callers are above it."
      private_constant :PARTS, :REST, :FLAT

      # @param call_sites [CallSites] with all sites: the page's figures add up to theirs
      # @param top [Integer, nil] so many have a frame each, the rest shares one; nil: all
      # @param by [Symbol]
      # @param app_root [String, nil]
      def initialize(call_sites, top: nil, by: :live_bytes, app_root: nil)
        @call_sites = call_sites
        @top = top
        @by = by
        @app_root = app_root
      end

      # @param io [#write]
      # @return [nil]
      def write(io)
        stacks = table
        flat = stacks.rows.all? { |row| row.first.size <= 1 }
        values = { "TITLE" => HtmlPage.escape(title), "FACTS" => HtmlPage.escape(facts.join(", ")),
                   "STYLE" => STYLE, "SCRIPT" => SCRIPT,
                   "DATA" => FlameData.new(stacks, head(flat), app_root: @app_root).json }
        io.write(PARTS["page.html"].gsub(/\{\{([A-Z]+)\}\}/) { values.fetch($1) })
        nil
      end

      private

      def table
        sites = (@call_sites.stacks || @call_sites).top(nil, by: @by)
        # A site that was left out has no row; what is known of these are their live bytes.
        return StackTable.from_sites(sites) unless @top && @top < sites.size

        table = StackTable.from_sites(sites.first(@top))
        table.rows << rest(table, StackTable.from_sites(sites.drop(@top)).rows)
        table
      end

      def rest(table, rows)
        table.frames << [format(REST, Units.counted(rows.size, "more call site")), 0, nil]
        variances = rows.filter_map { |row| row[StackTable::VARIANCES] }
        [[table.frames.size - 1], *(1..StackTable::FIGURES.size).map { |column| rows.sum { |row| row[column] } },
         *(variances.empty? ? [] : [variances.transpose.map(&:sum)])]
      end

      def title
        process = @call_sites.process
        "memintro: #{[process[:program] || 'memory by line', "pid #{process[:pid]}"].join(', ')}"
      end

      def facts
        process = @call_sites.process
        ["pid #{process[:pid]}", process[:ruby] && "ruby #{process[:ruby]}", process[:mode] && "#{process[:mode]} mode",
         process[:program], process[:time], "memintro #{process[:memintro]}"]
          .compact.map { |fact| Names.printable(fact) }
      end

      def head(flat)
        totals = @call_sites.totals
        notes = totals.caveats
        sampled = @call_sites.sampled_objects?
        notes = [Estimates.caution(@call_sites.process[:sample_bytes]), *notes] if totals.estimated? || sampled
        { version: 1, estimated: totals.estimated?, sampled: sampled,
          objects: @call_sites.rows.any? { |row| row[SiteRow::OBJECTS] },
          per_sample: totals.estimated? ? totals.per_sample(:live_bytes).round : 0,
          notes: [*notes, @call_sites.process[:problem], *(FLAT if flat)].compact }
      end
    end
  end
end
