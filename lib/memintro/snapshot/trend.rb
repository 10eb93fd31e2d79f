# frozen_string_literal: true

require_relative "../support/value_object"
require_relative "../support/list"
require_relative "snapshot"
require_relative "../support/statistics"
require_relative "../support/style"
require_relative "../support/untracked_text"

module Memintro
  # The growth over a series of {Snapshot}s: each figure with its slope per minute (Theil and Sen) and the confidence
  # that it grows at all (the test of Mann and Kendall, with the correction of Yue and Wang for values that depend on
  # the ones before, and Student's test of the steps). Frozen.
  #
  # A test at 99% takes one flat figure in a hundred for a growing one, and a process has hundreds: read the top of the
  # list, and take more snapshots. Fewer than five snapshots never reach 99%. The more each value depends on the one
  # before, the more snapshots are needed. Two patterns look like growth: a saw or a wave that is longer than the time
  # between the first and the last snapshot, such as a cache that is emptied once an hour (one in twelve is taken for
  # growth if its period is just that time), and a level that wanders slowly, over up to ten snapshots. Take more
  # snapshots, over several periods. Costs 0.1 ms for each name of the last snapshot that grew, and 10 ms with 100
  # snapshots.
  #
  # @example
  #   trend = Memintro::Trend.new(Dir["tmp/*.json"].sort.map { |file| Memintro::Snapshot.load(file) })
  #   trend.growing.first   # => #<Memintro::Trend::Series classes Session +12,000 a minute, 99.9% sure, in every step>
  class Trend
    # These files open this class, which `autoload` loads.
    require_relative "trend/series"

    include ByName
    prepend UntrackedText

    # Names for {#[]}: all keys of {#to_h}, in its order.
    ATTRIBUTES = %i[snapshots confidence notes series].freeze
    # Default number of series in texts and pages.
    DEFAULT_TOP = 20
    # Most snapshots that are read; of more, this many are chosen at even distances.
    MOST = 100
    # Formats that {#write} knows.
    FORMATS = %i[text json html].freeze
    # Counters that go up and down; the others of `GC.stat` can only rise.
    LEVELS = %i[heap_live_slots heap_allocated_pages old_objects malloc_increase_bytes oldmalloc_increase_bytes].freeze
    # Figures of memory that can only rise.
    PEAKS = /peak/
    # Lists of call sites, which may have been cut.
    SITES = %i[call_sites object_sites].freeze
    private_constant :LEVELS, :PEAKS, :SITES

    # @return [Array<Snapshot>] by time
    attr_reader :snapshots
    # @return [Array<Float>] when each was taken, in minutes since the first
    attr_reader :minutes
    # @return [Float] from 0 to 1: how sure a figure of {#growing} is
    attr_reader :confidence
    # @return [List<Series>] every figure that is larger in the last snapshot than in the first, the most certain growth
    #   first: certain ones by their slope in bytes
    attr_reader :series

    # @param snapshots [Array<Snapshot>] of one process, at least three, in any order
    # @param confidence [Float] that {#growing} asks for
    # @raise [ArgumentError, TypeError]
    def initialize(snapshots, confidence: 0.99)
      check(snapshots, confidence)
      @confidence = confidence
      @snapshots = thinned(snapshots.sort_by(&:time)).freeze
      @minutes = clock.freeze
      @series = Memintro.untracked { List.new(sorted(growing_of(values_by_name))) }
      freeze
    end

    # @return [List<Series>] figures that grow with at least {#confidence}
    def growing
      List.new(series.select { |one| sure?(one) })
    end

    # @return [List<Series>] figures that were greater in each snapshot than in the one before
    def every_step
      List.new(series.select(&:every_step))
    end

    # @return [Diff] of the first and the last
    def diff
      snapshots.last - snapshots.first
    end

    # @param io [#write]
    # @param format [Symbol] `:text`, to read; `:json`; `:html`, a page that needs nothing else
    # @param top [Integer, nil] series; nil: all, the default for `:json`
    # @return [nil]
    # @raise [ArgumentError, TypeError]
    def write(io = $stdout, format: :text, top: format.to_s == "json" ? nil : DEFAULT_TOP)
      Arguments.output(io)
      Arguments.count(:top, top, least: 1, optional: true)
      format = Arguments.choice(:format, format, FORMATS)
      Memintro.untracked { io.write(rendered(format, top, Style.colour?(io))) }
      nil
    end

    # @return [String] for people; the first {DEFAULT_TOP} series
    def to_s
      Memintro.untracked { rendered(:text, DEFAULT_TOP, false) }
    end

    # @return [String] a page with inline styles and nothing to fetch
    def to_html
      Memintro.untracked { rendered(:html, DEFAULT_TOP, false) }
    end

    # @param top [Integer, nil] series; nil: all
    # @return [Hash{Symbol => Object}]
    # @raise [ArgumentError, TypeError]
    def to_h(top = nil)
      Arguments.count(:top, top, optional: true)
      { snapshots: snapshots.map { |one| { time: one.time.strftime("%FT%T.%3NZ"), pid: one.pid } },
        confidence: confidence, notes: notes, series: (top ? series.first(top) : series).map(&:to_h) }
    end

    # @return [String] {#to_h} as JSON
    def to_json(top = nil, *)
      JsonText.dump({ memintro_trend: 2, **to_h(top.is_a?(Integer) ? top : nil) }) << "\n"
    end

    # @return [Array<String>] limits of the result
    def notes
      if few?
        few = "#{snapshots.size} snapshots are too few for #{percent} certainty; take at least 5."
      end
      [*few, *diff.notes]
    end

    # @return [String] one line for each of the first figures that grow
    def inspect
      "#<#{self.class} of #{snapshots.size} snapshots in #{Units.duration(minutes.last * 60)}, " \
        "#{Units.counted(growing.size, 'figure')} #{Units.noun(growing.size, 'grows', 'grow')}: " \
        "#{growing.first(3).map(&:inspect).join(', ')}>"
    end

    private

    def check(snapshots, confidence)
      unless snapshots.is_a?(Array) && snapshots.all?(Snapshot)
        raise TypeError, "snapshots is #{Arguments.shown(snapshots)}; it must be an Array of Memintro::Snapshot"
      end

      few = snapshots.size
      if few < 3
        raise ArgumentError, "a trend needs at least 3 snapshots, not #{few}" \
                             "#{'; for 2, subtract one from the other' if few == 2}"
      end
      return if confidence.is_a?(Numeric) && confidence.between?(0.5, 1)

      raise ArgumentError, "confidence is #{Arguments.shown(confidence)}; it must be a number from 0.5 to 1"
    end

    def thinned(all)
      return all if all.size <= MOST

      Array.new(MOST) { |i| all[i * (all.size - 1) / (MOST - 1)] }
    end

    # Uses the monotonic clock if all snapshots are of one process.
    def clock
      first = snapshots.first
      same = snapshots.all? { |one| one.pid == first.pid && one.process[:started] == first.process[:started] }
      snapshots.map { |one| (same ? one.monotonic_s - first.monotonic_s : one.time - first.time) / 60.0 }
    end

    # @return [Hash{Array(Symbol, String, Symbol) => Array<Numeric>}] of all snapshots, 0 where one does not have it
    def values_by_name
      figures = snapshots.map { |snapshot| figures(snapshot) }
      figures.last.keys.to_h { |key| [key, figures.map { |all| all[key] || 0 }] }
    end

    def figures(snapshot)
      found = {}
      memory = Diff::Sections.memory(snapshot).reject { |name, _| name.match?(PEAKS) || name.match?(/limit|high|max/) }
      add(found, :memory, memory, nil)
      add(found, :gc, snapshot.gc.slice(*LEVELS), nil)
      { types: snapshot.types, classes: snapshot.classes, internals: snapshot.internals,
        iseqs: snapshot.iseqs && snapshot.iseqs[:paths] }.each do |section, rows|
        rows&.each { |row| found[[section, row.name, row.bytes ? :bytes : :count]] = row.bytes || row.count }
      end
      sites = snapshot.call_sites
      add(found, :call_sites, sites.to_h { |site| [JsonText.normal(site.name), site.live_bytes] }, :bytes)
      if sites.any?(&:object_row)
        add(found, :object_sites, sites.to_h { |site| [JsonText.normal(site.name), site.object_bytes] }, :bytes)
      end
      found
    end

    def add(found, section, figures, unit)
      figures.each do |name, value|
        found[[section, name.to_s, unit || Diff::Sections.unit(name)]] = value if value.is_a?(Numeric)
      end
    end

    def growing_of(values_by_name)
      doubts = [snapshots.first, snapshots.last].map { |snapshot| doubts(snapshot) }
      values_by_name.filter_map do |(section, name, unit), values|
        next unless values.last > values.first
        # A site that is missing from a list that was cut may have had any figure.
        next if SITES.include?(section) && values.include?(0) && snapshots.any? { |one|
                  one.call_sites_left_out.positive?
                }

        Series.new(section, name, unit, minutes, values, variances(section, name, doubts))
      end
    end

    # @return [Hash{Symbol => Hash{String => Float}}] by section, the square of each call site's standard error; a
    #   section is missing where all is exact
    def doubts(snapshot)
      sites = snapshot.call_sites
      found = {}
      found[:call_sites] = squares(sites, :live_bytes) if snapshot.totals&.estimated?
      found[:object_sites] = squares(sites, :object_bytes) if sites.any?(&:sampled_objects?)
      found
    end

    def squares(sites, figure)
      sites.to_h { |site| [JsonText.normal(site.name), site.standard_error(figure)**2] }
    end

    def variances(section, name, doubts)
      known = doubts.map { |sections| sections[section] }
      known.map { |squares| (squares && squares[name]) || 0.0 } if known.any?
    end

    def sorted(series)
      series.sort_by do |one|
        [sure?(one) ? 0 : 1, one.unit == :bytes ? 0 : 1, -one.slope_per_minute, one.section, one.name.b]
      end
    end

    # The result must not depend on rounding.
    def sure?(one)
      one.slope_per_minute.positive? && one.confidence >= confidence - 1e-9
    end

    def few?
      1.0 - Statistics.confidence((0...snapshots.size).to_a) > 1.0 - confidence + 1e-9
    end

    def rendered(format, top, colour)
      return to_json(top) if format == :json

      sure = growing
      head = [header, duration, snapshots.last.process[:program]&.to_s, notes, confidence.to_f, sure.size]
      Native.trend(head, minutes, (sure.empty? ? series : sure).map(&:row), format, top, colour)
    end

    def header
      process = snapshots.last.process
      "memintro #{process[:memintro]}: #{snapshots.size} snapshots in #{duration}, pid #{process[:pid]}, " \
        "ruby #{process[:ruby]}"
    end

    def duration = Units.duration(minutes.last * 60)

    def percent = "#{format('%.1f', confidence * 100).delete_suffix('.0')}%"
  end
end
