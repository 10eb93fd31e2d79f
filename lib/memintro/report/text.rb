# frozen_string_literal: true

require_relative "callers"
require_relative "native_callers"
require_relative "../support/advice"
require_relative "../support/figures"
require_relative "../support/units"
require_relative "../support/names"
require_relative "../support/style"
require_relative "../support/table"

module Memintro
  module Report
    # The report for people: the process, the totals, a table of the top call sites, and notes. Colour only on a
    # terminal, and not if `NO_COLOR` is set. Figures are rounded; use JSON to compute with them.
    class Text
      BYTES = Units.method(:bytes).to_proc
      COUNT = Units.method(:count).to_proc
      # How a figure of a call site is shown, by its unit.
      CELLS = {
        count: ->(site, name) { site.shown(name, &COUNT) },
        ages: ->(site, name) { site.shown(name, &COUNT) },
        bytes: ->(site, name) { site.shown(name, &BYTES) },
        change: lambda do |site, name|
          Units.uncertain_growth(site[name], site.sampled_blocks? ? site.standard_error(name) : nil)
        end,
        mean_age: lambda do |site, name|
          error = format(" ±%.1f", site.standard_error(name)) if site.sampled_blocks?
          "#{'~' if error}#{format('%.1f', site[name])}#{error} GCs"
        end
      }.freeze
      private_constant :BYTES, :COUNT, :CELLS

      # @param figure [Figures::Figure]
      # @return [Proc] of a call site, the text in the figure's column
      def self.cell(figure)
        # Live bytes of blocks that outlived a collection, which separates them from churn.
        return ->(site) { site.old&.shown(:live_bytes, &BYTES) || "-" } if figure.adds == :old

        return ->(site) { greatest(site, figure) } if figure.adds == :max

        show = CELLS.fetch(figure.unit)
        ->(site) { show.call(site, figure.name) }
      end
      private_class_method :cell

      # The greatest of a sample has no standard error.
      def self.greatest(site, figure)
        value = site[figure.name]
        text = { age: ->(age) { Units.counted(age, "GC") }, bytes: BYTES, count: COUNT }.fetch(figure.unit).call(value)
        "#{'~' if site.sampled_blocks?}#{text}"
      end
      private_class_method :greatest

      # @param column [Symbol] see {Figures::Figure}
      # @return [Hash{String => Proc}] cells by heading, left to right
      def self.columns(column)
        Figures.in_columns(column).to_h { |figure| [figure.heading, cell(figure)] }
      end

      # @param by [Symbol] what a table is sorted by
      # @return [Hash{String => Proc}] the column that it has for that alone
      def self.columns_for(by)
        figure = Figures[by]
        figure.column == :sorted ? { figure.heading => cell(figure) } : {}
      end

      # @param call_sites [CallSites]
      # @param top [Integer, nil] nil: all
      # @param by [Symbol]
      # @param app_root [String, nil]
      def initialize(call_sites, top: DEFAULT_TOP, by: :live_bytes, app_root: nil)
        @call_sites = call_sites
        @top = top
        @by = by
        @names = Names.new(app_root)
        @native = NativeCallers.new
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
        process = @call_sites.process
        facts = ["pid #{process[:pid]}", process[:ruby] && "ruby #{process[:ruby]}", manner(process), ending(process),
                 process[:time]]
        [style.bold("memintro #{process[:memintro]}: #{facts.compact.join(', ')}"),
         process[:program] && Names.printable(process[:program])].compact
      end

      def manner(process)
        return if process[:mode].nil?
        return "not tracking" unless process[:tracking]

        "#{process[:mode]} mode#{sampling(process)}, #{process[:preloaded] ? 'preloaded' : 'started live'}"
      end

      def sampling(process)
        " (#{Units.bytes(process[:sample_bytes])})" if process[:mode].to_s == "sampled" && process[:sample_bytes]
      end

      def ending(process)
        if process[:signal].to_i.positive?
          "killed by SIG#{Signal.signame(process[:signal]) || process[:signal]}"
        elsif process[:exit_status]
          "left by #{ruby? ? 'exit!' : '_exit'}(#{process[:exit_status]})"
        end
      end

      def ruby?
        @call_sites.rows.any? { |row| row[SiteRow::KIND] == :ruby }
      end

      def totals
        figures = @call_sites.totals
        ["live #{figures.shown(:live_bytes, &BYTES)} in #{figures.counted(:live_blocks, 'block', &COUNT)}, " \
         "allocated #{figures.shown(:allocated_bytes, &BYTES)} in #{figures.counted(:allocations, 'call', &COUNT)}, " \
         "freed #{figures.shown(:freed_bytes, &BYTES)} in #{figures.shown(:frees, &COUNT)}",
         "#{resident}tracking itself uses #{Units.bytes(figures.tracker_bytes)}"]
      end

      # For one process, where the kernel says: most of what is live is in it.
      def resident
        rss = @call_sites.process[:rss_bytes]
        "RSS #{Units.bytes(rss)}; " if rss
      end

      def body(style)
        sites = @call_sites.top(@top, by: @by)
        return advice if @call_sites.size.zero?
        return remainder(sites).drop(1) if sites.empty?

        ["#{Units.count(sites.size)} of #{Units.counted(@call_sites.size, 'call site')}, by #{@by}:", "",
         *@native.lines(table(sites).lines(style), sites), *remainder(sites),
         *Callers.new(@call_sites, @names, @by).lines(sites, style)]
      end

      def table(sites)
        live = @call_sites.totals.live_bytes
        always = Text.columns(:always)
        always.delete(Figures[:old_bytes].heading) if sites.none?(&:old_bytes)
        first, *rest = always.to_a
        columns = [*object_columns(sites), first, ["share", ->(site) { share(site, live) }], *rest,
                   *Text.columns_for(@by)].to_h
        Table.new(columns.keys, "call site",
                  sites.map { |site| columns.values.map { |cell| cell.call(site) } << @names.short(site) })
      end

      # A site of which no object was sampled may have some.
      def object_columns(sites)
        return {} unless sites.any?(&:object_row)
        return Text.columns(:objects) unless @call_sites.sampled_objects?

        Text.columns(:objects).transform_values do |cell|
          ->(site) { cell.call(site).sub(/\A(?!~)/, site.sampled_objects? ? "" : "~") }
        end
      end

      # The quotient of two estimates, one of which is a part of the other, is no more certain than the site's own
      # figure.
      def share(site, live)
        "#{'~' if site.sampled_blocks? && live.positive?}#{Units.share(site.live_bytes, live)}"
      end

      def remainder(sites)
        left = @call_sites.size - sites.size
        return [] unless left.positive?

        live = @call_sites.rows.sum(&CallSites::FIGURES[:live_bytes]) + @call_sites.live_bytes_left_out -
               sites.sum(&:live_bytes)
        ["", "#{Units.counted(left, "#{'more ' if sites.any?}call site")}, " \
             "live #{Units.uncertain(live, remaining_error(sites), &BYTES)}"]
      end

      # The sites' samples are drawn independently, so their variances add up.
      def remaining_error(sites)
        sampled = @call_sites.rows.filter_map { |row| row[SiteRow::VARIANCES] }
        return if sampled.empty? && @call_sites.variance_left_out.nil?

        variance = sampled.sum { |one| SiteRow.variance(one, :total_bytes) - SiteRow.variance(one, :freed_bytes) } +
                   @call_sites.variance_left_out.to_f - sites.sum { |site| site.variance(:live_bytes) }
        Math.sqrt([variance, 0.0].max + Estimates.square(@call_sites.totals.per_sample(:live_bytes)))
      end

      def advice
        problem = @call_sites.process[:problem]
        return ["memintro sees no allocation in this process:", problem] if problem
        return ["No call site has allocated since tracking started."] if @call_sites.process[:tracking]
        # Only a process that tracked leaves a dump, and the dump does not contain the mode.
        return ["Nothing has been allocated in this process."] unless @call_sites.process.key?(:tracking)

        ["Nothing has been tracked in this process. Call Memintro.start in it and ask again after some work,",
         "or run the program from its start with: memintro run -- CMD"]
      end

      # What is moved out of Ruby's transient heap, up to 3.2, is the collector's where the object is not tracked.
      MOVED = "(gc) has the contents of arrays, hashes, structs and objects that outlived a collection, if no line " \
              "is known that made them: Ruby before 3.3 moves them then. With --objects, their lines have them; " \
              "`memintro holders` says who holds them."
      private_constant :MOVED

      # Whether the collector has a tenth of what is live, on a Ruby that moves.
      def moved?
        major, minor = @call_sites.process[:ruby].to_s.split(".").map(&:to_i)
        return false if minor.nil? || ([major, minor] <=> [3, 3]) >= 0

        collector = @call_sites.top(@top, by: @by).find { |site| site.kind == :pseudo && site.name == "(gc)" }
        own = collector&.live_bytes.to_i
        own.positive? && own >= @call_sites.totals.live_bytes / 10
      end

      def warnings(style)
        figures = @call_sites.totals
        lines = []
        is_sampled = figures.estimated? || @call_sites.sampled_objects?
        lines << Estimates.caution(@call_sites.process[:sample_bytes]) if is_sampled
        lines.concat(figures.caveats)
        doctor = Advice.pick("Memintro.doctor", "memintro doctor PID")
        lines << "`#{doctor}` lists how frees can bypass the hook." if figures.missed_frees.positive?
        problem = @call_sites.process[:problem]
        lines << "Allocations are not seen: #{problem}" if problem && @call_sites.size.positive?
        lines << NativeCallers::CAUTION if @native.any?
        lines << MOVED if moved?
        lines << "Tracking is off: these are the figures of its last run." if stale?
        lines.empty? ? [] : ["", *lines.map { |line| style.warn("note: ") + line }]
      end

      def stale?
        @call_sites.process[:tracking] == false && @call_sites.totals.allocations.positive?
      end
    end
  end
end
