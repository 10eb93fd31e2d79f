# frozen_string_literal: true

require_relative "../support/arguments"
require_relative "call_site"
require_relative "../support/list"
require_relative "totals"

module Memintro
  # The figures at one instant, from this process, a raw dump or a saved report.
  #
  # The rows come from the tracker; {CallSite}s are made only when they are read. Making them is never tracked. Blocks
  # that the caller passes in are tracked as usual.
  # @api private
  class CallSites
    # Version of the JSON of a report; changes when a key changes its meaning or goes away.
    LAYOUT = 1
    # The column of a row in which a figure is; nil: it is computed.
    FIGURES = Figures::SORTABLE.to_h { |name| [name, SiteRow::COLUMNS.index(name)] }.freeze
    # Sites made at a time.
    SLICE = 256
    # No bytes, no objects.
    NONE = [0, 0].freeze
    private_constant :SLICE, :NONE

    # @return [Totals]
    attr_reader :totals
    # @return [Hash{Symbol => Object}] whose figures they are: pid, program, Ruby, mode and the like; problem, if
    #   allocations do not reach the hook
    attr_reader :process
    # @return [Array<Array>] see {SiteRow}
    attr_reader :rows

    # @return [Integer] call sites that {rows} leaves out, because they have less than all listed ones
    attr_reader :left_out

    # @return [Integer] the live bytes of those
    attr_reader :live_bytes_left_out

    # @return [Float, nil] the variance of these; nil: they are exact
    attr_reader :variance_left_out

    # @param most [Integer, nil] only this number, those with most; nil: all
    # @param by [Symbol] most of what, one of {CallSite::FIGURES}
    # @return [CallSites] of this process, now. No object is made for omitted sites.
    def self.take(most: nil, by: :live_bytes)
      Memintro.untracked do
        totals, process = head
        rows, *left_out = most ? Native.top_sites(most, by) : [Native.sites]
        new(totals, rows, process, Memintro.epoch).tap { |sites| sites.leave_out(*left_out) }
      end
    end

    # @return [CallSites] of this process, now: each whole stack by itself, and what has none
    def self.take_stacks
      Memintro.untracked do
        totals, process = head
        new(totals, Native.stacks, process, Memintro.epoch)
      end
    end

    # @param report [Native::Report]
    # @param process [Hash] whose figures they are
    # @return [CallSites] of a file
    def self.from_report(report, process: report.process)
      new(Totals.from_native(report.totals), report.rows, process).tap { |sites| sites.leave_out(*report.left_out) }
    end

    # @return [Array(Totals, Hash)] of this process, now: all but the sites
    def self.head
      MainRactor.only
      totals = Totals.from_native(Native.totals)
      process = live_process
      process[:sample_bytes] = Native.sample_bytes if totals.estimated?
      problem = Native.unseen
      process[:problem] = problem if problem
      [totals, process]
    end

    # @return [Integer, nil] nil: the kernel does not say
    def self.rss_bytes
      Native.rss
    rescue Error, SystemCallError
      nil
    end
    private_class_method :rss_bytes

    # @return [Hash{Symbol => Object}]
    def self.live_process
      { pid: ::Process.pid, program: $PROGRAM_NAME.dup, ruby: RUBY_VERSION, platform: RUBY_PLATFORM,
        memintro: VERSION, mode: Native.mode, tracking: Native.tracking?, preloaded: Native.preloaded?,
        generation: Native.generation, time: Time.now.utc.strftime("%FT%TZ"), rss_bytes: rss_bytes }.compact
    end
    private_class_method :live_process

    # @param totals [Totals]
    # @param rows [Array<Array>]
    # @param process [Hash]
    # @param epoch [Integer, nil] nil: not this process's
    def initialize(totals, rows, process, epoch = nil)
      @totals = totals
      @rows = rows
      @process = process
      @epoch = epoch
      leave_out
    end

    # @param sites [Integer] how many
    # @param live_bytes [Integer] theirs
    # @param variance [Float, nil] of these
    # @return [nil]
    def leave_out(sites = 0, live_bytes = 0, variance = nil)
      @left_out = sites
      @live_bytes_left_out = live_bytes
      @variance_left_out = variance
      nil
    end

    # @param by [Symbol] of {SiteGroups::ALL}
    # @return [CallSites] sums
    def grouped(by, app_root = nil)
      Memintro.untracked { CallSites.new(totals, SiteGroups.new(by, app_root).rows(rows), process) }
    end

    # @yieldparam row [Array] see {SiteRow}
    # @return [CallSites] some of them
    def only(&block)
      Memintro.untracked { CallSites.new(totals, rows.select(&block), process, @epoch) }
    end

    # @return [Integer] how many call sites there are, those that are left out included
    def size
      rows.size + left_out
    end

    # @yieldparam site [CallSite]
    # @return [self]
    def each(min_live_bytes: 0)
      (0...rows.size).step(SLICE) do |start|
        Memintro.untracked { make(rows[start, SLICE], min_live_bytes) }.each { |site| yield site }
      end
      self
    end

    # @param count [Integer, nil] nil: all
    # @param by [Symbol] one of {FIGURES}
    # @param older_than_gcs [Integer, nil] count only live blocks of at least this age; of this process only
    # @return [List<CallSite>] greatest first, the earlier site first where they are equal
    def top(count, by: :live_bytes, older_than_gcs: nil)
      Memintro.untracked do
        next List.new(sorted(count, by).map { |row| CallSite.new(row, nil, @epoch) }) unless older_than_gcs

        objects = Native.tracks_objects ? Native.old_objects(older_than_gcs) : {}
        aged = objects.transform_values { [0, 0] }.merge(Native.live_by_site(older_than_gcs))
        List.new(sorted(count, by, aged, objects).map do |row|
          id = row[SiteRow::ID]
          CallSite.new(row, aged[id], @epoch, objects[id])
        end)
      end
    end

    # @param name [String] a whole name, or the end of one from a folder or file on
    # @return [CallSite, nil]
    # @raise [AmbiguousNameError]
    def find(name)
      Memintro.untracked do
        exact, ends = matches(name)
        raise AmbiguousNameError.new(name, ends.map { |row| CallSite.new(row).name }) if exact.empty? && ends.size > 1

        # Two native callers can have one name (a stripped library mapped twice); the larger one is meant.
        row = exact.max_by(&figure_in_row(:live_bytes)) || ends.first
        row && CallSite.new(row, nil, @epoch)
      end
    end

    private

    def sorted(count, by, aged = nil, objects = {})
      chosen = aged ? rows.select { |row| aged.key?(row[SiteRow::ID]) } : rows
      key = sort_key(figure_of(by, aged, objects))
      # min_by reserves memory for as many elements as it is asked for.
      count && count < chosen.size ? chosen.min_by(count, &key) : chosen.sort_by(&key)
    end

    # After Mwrap.reset, frees can be more than allocations; these sites are shown as well.
    def make(slice, min_live_bytes)
      slice = slice.select { |row| SiteRow.live_bytes(row) >= min_live_bytes } if min_live_bytes.positive?
      slice.map { |row| CallSite.new(row, nil, @epoch) }
    end

    # Sorts by the larger figure, then by the lower id, in one Integer: comparing arrays takes ten times as long. Ids of
    # sites have 24 bits.
    def sort_key(figure)
      lambda do |row|
        value = figure.call(row)
        value.is_a?(Float) ? [-value, row[SiteRow::ID]] : (-value << 24) + row[SiteRow::ID]
      end
    end

    def figure_of(by, aged, objects)
      bytes = ->(row) { aged[row[SiteRow::ID]][SiteRow::OLD_BYTES] }
      slots = ->(row) { objects.fetch(row[SiteRow::ID], NONE)[0] }
      case aged && by
      when :live_bytes then bytes
      when :live_blocks then ->(row) { aged[row[SiteRow::ID]][SiteRow::OLD_BLOCKS] }
      when :live_objects then ->(row) { objects.fetch(row[SiteRow::ID], NONE)[1] }
      when :object_bytes then slots
      when :retained_bytes then ->(row) { bytes.call(row) + slots.call(row) }
      else figure_in_row(by)
      end
    end

    # How a figure is computed from a row, for sorting a million rows without making a million objects.
    def figure_in_row(name)
      column = FIGURES.fetch(name)
      column ? ->(row) { row[column] } : ->(row) { SiteRow.public_send(name, row) }
    end

    # Bytes are compared: paths need not be valid in any encoding.
    def matches(name)
      path, line = name.b.match(/\A(.+):(\d+)\z/m)&.captures
      line = line&.to_i
      path &&= path.delete_prefix("./")
      exact = []
      ends = []
      rows.each do |row|
        if row[SiteRow::KIND] != :ruby
          exact << row if row[SiteRow::NAME].b == name.b
        elsif row[SiteRow::LINENO] == line
          sort_in(row, path, exact, ends)
        end
      end
      [exact, ends]
    end

    def sort_in(row, path, exact, ends)
      whole = row[SiteRow::NAME].b
      if whole.delete_prefix("./") == path
        exact << row
      elsif whole.end_with?("/#{path}".b)
        ends << row
      end
    end
  end
end
