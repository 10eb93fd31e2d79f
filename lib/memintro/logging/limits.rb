# frozen_string_literal: true

require_relative "../support/arguments"
require_relative "limit_exceeded"
require_relative "../support/json_text"
require_relative "../support/statistics"
require_relative "memory_line"

module Memintro
  # Compares RSS, which requests measure anyway, with a bound and with a bound for growth per hour. When a bound is
  # crossed, memintro acts once, in a thread of its own, and again only after the figure has been 5% below the bound: it
  # calls a block, or logs what changed since the first snapshot, as a diff. memintro never kills a process.
  #
  # @api private
  class Limits
    # Parts of the snapshots, in addition to the light part. They walk Ruby's heap: some 10 ms for each million objects.
    PARTS = %i[classes iseqs].freeze
    # Seconds between two points from which growth is computed, points that are kept, and the fewest that are enough.
    STEP_SECONDS = 60
    MOST_POINTS = 61
    FEWEST_POINTS = 11
    REARM_SHARE = 0.95
    # Rows of each list in JSON, so few that the line stays whole: Docker, for example, cuts lines at 16 KiB.
    LOGGED_ROWS = [10, 5, 3, 1].freeze
    LOGGED_BYTES = 15_000

    # @param max_rss_bytes [Integer, nil]
    # @param max_growth_bytes_per_hour [Integer, nil]
    # @param on_limit [#call, nil] gets a {LimitExceeded}; nil: the log gets a diff
    # @param target [LogTarget]
    # @param format [Symbol] of the log, one of {MemoryLine::FORMATS}
    # @param clock [#call] seconds that never go back
    # @return [Limits, nil] nil without a bound
    def self.build(max_rss_bytes, max_growth_bytes_per_hour, on_limit, target, format: :logfmt, clock: MONOTONIC)
      rss = Arguments.count(:max_rss_bytes, max_rss_bytes, least: 1, optional: true)
      growth = Arguments.count(:max_growth_bytes_per_hour, max_growth_bytes_per_hour, least: 1, optional: true)
      bounds = { rss: rss, growth: growth }.compact
      unless on_limit.nil? || on_limit.respond_to?(:call)
        raise TypeError, "on_limit is #{Arguments.shown(on_limit)}; it must have a method call, or be nil"
      end
      return new(bounds, on_limit, target, format, clock) unless bounds.empty?

      raise ArgumentError, "on_limit needs max_rss_bytes or max_growth_bytes_per_hour" if on_limit
    end

    MONOTONIC = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) }
    private_constant :MONOTONIC

    # @see .build
    def initialize(bounds, on_limit, target, format, clock)
      @bounds = bounds
      @on_limit = on_limit
      @target = target
      @json = format == :json
      # JSON has the time inside the object, where a program finds it.
      @line = MemoryLine.new(@json ? [*LimitExceeded::ATTRIBUTES, :time] : LimitExceeded::ATTRIBUTES, format)
      @clock = clock
      @mutex = Mutex.new
      begin_process
    end

    # Costs a comparison or two while no bound is crossed.
    #
    # @param rss_bytes [Integer, nil]
    # @param logger_at_hand [#info, #write, nil]
    # @return [void]
    def check(rss_bytes, logger_at_hand = nil)
      # If another thread is at this point, this one need not check.
      return if rss_bytes.nil? || !@mutex.try_lock

      begin
        begin_process unless @pid == Process.pid
        remember unless @earlier || @on_limit
        judge(:rss, rss_bytes, rss_bytes, logger_at_hand) if @bounds[:rss]
        note_growth(rss_bytes, logger_at_hand) if @bounds[:growth]
      ensure
        @mutex.unlock
      end
    end

    private

    # Also called in a forked child, where the parent's results are not valid.
    def begin_process
      @pid = Process.pid
      @over = {}
      @points = []
      @earlier = nil
    end

    def note_growth(rss_bytes, logger)
      now = @clock.call
      return if @points.any? && now - @points.last[0] < STEP_SECONDS

      @points << [now, rss_bytes]
      @points.shift if @points.size > MOST_POINTS
      return if @points.size < FEWEST_POINTS

      judge(:growth, (Statistics.slope(*@points.transpose) * 3600).round, rss_bytes, logger)
    end

    def judge(limit, value, rss_bytes, logger)
      bound = @bounds[limit]
      if value > bound
        return if @over[limit]

        @over[limit] = true
        beside { tell(LimitExceeded.new(limit, value, bound, rss_bytes), logger) }
      elsif value < bound * REARM_SHARE
        @over[limit] = false
      end
    end

    # The first snapshot, to compare later ones with.
    def remember
      @earlier = :on_its_way
      beside { @earlier = Memintro.snapshot(*PARTS) }
    end

    def tell(exceeded, logger)
      return @on_limit.call(exceeded) if @on_limit

      line = @line.render(exceeded)
      later = Memintro.snapshot(*PARTS)
      earlier = @earlier
      @earlier = later
      @target.write(earlier.is_a?(Snapshot) ? with(later - earlier, line) : line, logger)
    end

    # Texts in JSON contain no line breaks, so a reader gets one object on each line.
    def with(diff, line)
      return "#{line}\n#{diff}" unless @json

      texts = LOGGED_ROWS.lazy.map { |rows| JsonText.line(diff.to_h(top: rows)) }
      "#{line.delete_suffix('}')},\"diff\":#{texts.find { |text| text.bytesize < LOGGED_BYTES } || texts.to_a.last}}"
    end

    # Runs in another thread, so that no request waits for it.
    def beside
      thread = Thread.new do
        Thread.current.report_on_exception = false
        yield
      rescue StandardError, ScriptError => e
        @target.tell_once(e)
      end
      thread.name = "memintro-limits"
    end
  end
end
