# frozen_string_literal: true

require_relative "../units"
require_relative "names"
require_relative "style"
require_relative "table"

module Memintro
  module Report
    # The report for people: whose figures, the totals, a table of the call sites that matter most, and what to beware
    # of. Colour only on a terminal, and not where `NO_COLOR` is set. Figures are rounded; take JSON to compute with.
    class Text
      # Columns that are always there, left to right.
      COLUMNS = {
        "live" => ->(site) { Units.bytes(site.live_bytes) },
        "blocks" => ->(site) { Units.count(site.live_blocks) },
        "allocs" => ->(site) { Units.count(site.allocations) },
        "frees" => ->(site) { Units.count(site.frees) },
        "growth" => ->(site) { Units.signed_bytes(site.growth) }
      }.freeze
      # Columns that appear when the table is sorted by them.
      ON_DEMAND = {
        total_bytes: ["allocated", ->(site) { Units.bytes(site.total_bytes) }],
        freed_bytes: ["freed", ->(site) { Units.bytes(site.freed_bytes) }],
        mean_lifespan: ["mean life", ->(site) { format("%.1f GCs", site.mean_lifespan) }],
        max_lifespan: ["max life", ->(site) { "#{Units.count(site.max_lifespan)} GCs" }],
        age_total: ["age total", ->(site) { Units.count(site.age_total) }]
      }.freeze
      private_constant :COLUMNS, :ON_DEMAND

      # @param snapshot [CallSites]
      # @param top [Integer, nil] nil: all
      # @param by [Symbol]
      # @param app_root [String, nil]
      def initialize(snapshot, top: DEFAULT_TOP, by: :live_bytes, app_root: nil)
        @snapshot = snapshot
        @top = top
        @by = by
        @names = Names.new(app_root)
      end

      # @param io [#write]
      # @return [nil]
      def write(io)
        style = Style.for(io)
        io.write([*header(style), *totals, "", *body(style), *warnings(style)].join("\n") << "\n")
        nil
      end

      private

      def header(style)
        process = @snapshot.process
        facts = ["pid #{process[:pid]}", process[:ruby] && "ruby #{process[:ruby]}", manner(process), ending(process),
                 process[:time]]
        [style.bold("memintro #{process[:memintro]}: #{facts.compact.join(', ')}"),
         process[:program] && Names.printable(process[:program])].compact
      end

      def manner(process)
        return if process[:mode].nil?
        return "not tracking" unless process[:tracking]

        "#{process[:mode]} mode, #{process[:preloaded] ? 'preloaded' : 'started live'}"
      end

      def ending(process)
        if process[:signal].to_i.positive?
          "killed by SIG#{Signal.signame(process[:signal]) || process[:signal]}"
        elsif process[:exit_status]
          "left by exit!(#{process[:exit_status]})"
        end
      end

      def totals
        figures = @snapshot.totals
        ["live #{Units.bytes(figures.live_bytes)} in #{Units.count(figures.live_blocks)} blocks, " \
         "allocated #{Units.bytes(figures.allocated_bytes)} in #{Units.count(figures.allocations)} calls, " \
         "freed #{Units.bytes(figures.freed_bytes)} in #{Units.count(figures.frees)}",
         "tracking itself uses #{Units.bytes(figures.tracker_bytes)}"]
      end

      def body(style)
        sites = @snapshot.top(@top, by: @by)
        return advice if sites.empty?

        ["#{Units.count(sites.size)} of #{Units.count(@snapshot.rows.size)} call sites, by #{@by}:", "",
         *table(sites).lines(style), *remainder(sites)]
      end

      def table(sites)
        live = @snapshot.totals.live_bytes
        columns = { "live" => COLUMNS["live"], "share" => ->(site) { Units.share(site.live_bytes, live) } }
        columns.merge!(COLUMNS)
        extra = ON_DEMAND[@by]
        columns[extra[0]] = extra[1] if extra
        Table.new(columns.keys, "call site",
                  sites.map { |site| columns.values.map { |cell| cell.call(site) } << @names.short(site) })
      end

      def remainder(sites)
        left = @snapshot.rows.size - sites.size
        return [] unless left.positive?

        live = @snapshot.rows.sum(&CallSites::FIGURES[:live_bytes]) - sites.sum(&:live_bytes)
        ["", "#{Units.count(left)} more call site#{'s' if left > 1}, live #{Units.bytes(live)}"]
      end

      def advice
        return ["No call site has allocated since tracking started."] if @snapshot.process[:tracking]

        ["Nothing has been tracked in this process. Call Memintro.start in it and ask again after some work,",
         "or run the program from its start with: memintro run -- CMD"]
      end

      def warnings(style)
        figures = @snapshot.totals
        lines = []
        if figures.dropped.positive?
          lines << "#{Units.count(figures.dropped)} allocations could not be followed: the budget " \
                   "(max_tracker_bytes) or the memory ran out. The figures are too low by these."
        end
        if figures.missed_frees.positive?
          lines << "#{Units.count(figures.missed_frees)} frees went past the hook and were noticed later; " \
                   "`Memintro.doctor` lists how that can happen."
        end
        lines << "Tracking is off: these are the figures of its last run." if stale?
        lines.empty? ? [] : ["", *lines.map { |line| style.warn("note: ") + line }]
      end

      def stale?
        @snapshot.process[:tracking] == false && @snapshot.totals.allocations.positive?
      end
    end
  end
end
