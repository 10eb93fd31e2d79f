# frozen_string_literal: true

require_relative "../logging/log_target"
require_relative "../runtime/background"
require_relative "../support/arguments"
require_relative "../support/list"
require_relative "../support/untracked_text"

module Memintro
  # Defined before its parts, which reopen it and would otherwise make Ruby load this file again.
  class Hunt; end
end

require_relative "budget"
require_relative "callback"
require_relative "clock"
require_relative "finding"
require_relative "inquiry"
require_relative "investigation"
require_relative "series"
require_relative "tracker"
require_relative "watch"

module Memintro
  # A hunt for growing memory: the result of {Memintro.hunt}. A thread of memintro's own looks at the process at
  # regular intervals. It uses at most 0.2% of a core: {#cpu_share} is its use so far, and {#pause} the wait before
  # the next look. It continues in each forked child, which has the findings of its parent.
  #
  # @example
  #   hunt = Memintro.hunt
  #   hunt.cpu_share   # => 0.0004
  #   hunt.stop
  class Hunt
    prepend UntrackedText

    # Findings that are kept.
    MOST_FINDINGS = 20
    # Seconds between two looks.
    SECONDS = 1..86_400
    THREAD_NAME = "memintro-hunt"
    # Least wait as a part of {#every}, after a look of any length.
    LEAST_REST = 0.5
    private_constant :SECONDS, :THREAD_NAME, :LEAST_REST

    # @return [Numeric] seconds from one look to the next; more if looks are expensive
    attr_reader :every
    # @return [Symbol] `:stopped`, `:watching` or `:investigating`
    attr_reader :state
    # @return [Integer] looks so far, in this process
    attr_reader :looks
    # @return [Integer] investigations so far, in this process
    attr_reader :investigations
    # @return [Integer] looks that have failed, in this process
    attr_reader :errors
    # @return [Exception, nil] the error of the last failed look
    attr_reader :last_error

    @current = nil
    @kept = [].freeze

    class << self
      # @api private
      # @return [Hunt, nil] the one of this process
      attr_reader :current
      # @api private
      # @return [Array<Finding>] of all hunts of this process and its parents, oldest first
      attr_accessor :kept

      # Begins a hunt, or returns the present one if it has the same settings.
      # @api private
      # @return [Hunt]
      def launch(**settings)
        running = @current
        running = nil unless running&.running?
        return running if running&.same?(**settings)

        hunt = new(**settings)
        running&.stop
        hunt.start
        former = @current
        @current = hunt
        # Another thread may have begun one meanwhile.
        former.stop unless former.nil? || former.equal?(running)
        hunt
      end

      # @api private
      # @return [Boolean] whether there was one
      def stop
        running = @current
        return false unless running

        was_running = running.running?
        # Also ends tracking that was busy at the last attempt.
        running.stop
        was_running
      end
    end

    # @api private
    def initialize(every: 60, logger: nil, on_finding: nil, clock: nil, watch: nil, tracker: nil, inquiry: nil)
      @every = every
      @state = :stopped
      @given = [every, logger, on_finding]
      @clock = clock || Clock.new
      @parts = [watch, tracker, inquiry]
      begin_process
      return if Brake.holds?

      Hunt.check_every(every)
      unless on_finding.nil? || on_finding.respond_to?(:call)
        raise TypeError, "on_finding is #{Arguments.shown(on_finding)}; it must have a method call, or be nil"
      end

      @target = LogTarget.new(logger)
      @callback = on_finding && Callback.new(on_finding) { |trouble| log(trouble) }
    end

    # @api private
    def self.check_every(every)
      every = Arguments.seconds(:every, every)
      return if SECONDS.cover?(every)

      raise ArgumentError, "every is #{every}; it must be from #{SECONDS.begin} to #{SECONDS.end} seconds"
    end

    # @api private
    # @return [Hunt] itself
    # @raise [Error] if the system gives no thread
    def start
      @background = Background.start(THREAD_NAME) { |stop| run(stop) } if @target
      self
    end

    # @api private
    # @return [Boolean] whether it has these settings
    def same?(every:, logger:, on_finding:, **_)
      @given == [every, logger, on_finding]
    end

    # Ends it, and the tracking that it has started, immediately. Findings stay readable. A second call does nothing.
    # Signal handlers may call it.
    # @return [nil]
    def stop
      @background&.stop
      @tracker.stop_tracking if @background && !@background.alive?
      @state = :stopped
      nil
    rescue Error => e
      @last_error = e
      nil
    end

    # @return [Boolean] whether it hunts in this process
    def running?
      @background ? @background.alive? : false
    end

    # @return [List<Finding>] the last 20 of this process and its parents, oldest first
    def findings
      List.new(Hunt.kept)
    end

    # @return [Float] seconds of processor time that it has used in this process, including copies of the process
    def cpu_seconds = @budget.spent

    # @return [Float] the part of one core that it has used since it began in this process, from 0 to 1. No look
    #   begins while it is above 0.002, except those at the times that findings name; an investigation may raise it
    #   above that for a while
    def cpu_share = @budget.share

    # @return [Float] seconds that it waits before the next look
    def pause = [@every.to_f, repaid].max

    # @return [Float, nil] seconds until it looks again; nil while it looks or investigates, and when it is stopped
    def next_look
      due = @due
      due && [due - @clock.now, 0.0].max if @state == :watching
    end

    # @return [Array<String>] subjects of the present investigation: classes, files of compiled code, or `malloc`,
    #   which is all memory outside of Ruby's heap
    attr_reader :suspects

    # @return [Integer] figures that it watches
    def watched = @series.size

    # @return [Hash{Symbol => Object}]
    def to_h
      { state: state, every: every, looks: looks, investigations: investigations, watched: watched,
        cpu_seconds: cpu_seconds.round(6), cpu_share: cpu_share.round(6), pause_s: pause.round(3), errors: errors,
        next_look_s: next_look&.round(3), suspects: suspects,
        last_error: last_error && "#{last_error.class}: #{last_error.message}",
        findings: findings.map(&:to_h) }
    end

    # @return [String] {#to_h} as JSON
    def to_json(*)
      JsonText.dump(to_h)
    end

    # @return [String] one short line
    def inspect
      "#<#{self.class} #{state}, every #{every} s, #{Units.counted(looks, 'look')}, " \
        "#{format('%.3f', cpu_share * 100)}% of a core, #{Units.counted(findings.size, 'finding')}>"
    end
    alias to_s inspect

    # Looks at the process once.
    # @api private
    # @param stop [Background::Stop]
    # @return [nil]
    def look(stop)
      @budget.charge do
        # Ends tracking that could not be ended after its investigation.
        @tracker.stop_tracking
        reading = @watch.read(minute)
        @looks += 1
        @series.add(reading)
        close_ended
        confirm(reading)
        suspects = @series.rising(reading)
        # A look that a finding has announced may come before the last investigation is paid back.
        investigate(suspects, stop) unless suspects.empty? || @budget.pause(0).positive?
      end
      nil
    end

    private

    # Also runs in a forked child, where the parent's figures are not valid.
    def begin_process
      @pid = Native.kernel_pid
      @budget = Budget.new(@clock)
      @series = Series.new
      watch, tracker, inquiry = @parts
      @watch = watch || Watch.new
      @tracker = tracker || Tracker.new
      @inquiry = inquiry || Inquiry.new(@budget)
      @looks = @investigations = @errors = 0
      @suspects = [].freeze
      @courses = {}
      @due = nil
    end

    def run(stop)
      if @pid != Native.kernel_pid
        former = @tracker
        begin_process
        former.stop_tracking
      end
      @state = :watching
      loop do
        begun = @clock.now
        attempt { look(stop) }
        seconds = rest(begun)
        @due = @clock.now + seconds
        break if @clock.wait(stop, seconds)

        @due = nil
      end
    ensure
      @state = :stopped if stop.requested?
    end

    # Looks begin at regular intervals, although a look at a busy process may take seconds.
    def rest(begun)
      [@every - (@clock.now - begun), @every * LEAST_REST, repaid].max
    end

    # Waits until the budget is paid back, but at most until the time that a finding names.
    def repaid
      again = @courses.filter_map { |cause, _| find(cause)&.look_again_at }.min
      [@budget.pause(0), (again - @clock.time if again)].compact.min
    end

    # The next look may succeed, and the program would not notice that the thread has ended.
    def attempt
      yield
    rescue StandardError, ScriptError, NoMemoryError, SystemStackError => e
      @errors += 1
      log("a look has failed, and perhaps others: #{e.class}: #{e.message}") if @errors == 1
      @last_error = e
    ensure
      @state = :watching if @state == :investigating
      @suspects = [].freeze
    end

    def minute = @clock.now / 60.0

    def investigate(suspects, stop)
      @state = :investigating
      @suspects = suspects.keys.map { |_, name| name }.freeze
      @investigations += 1
      investigation = Investigation.new(@watch, @tracker, @inquiry, @clock, @every)
      outcome = investigation.run(suspects) { |seconds| @clock.wait(stop, seconds) } or return
      @series.refute(outcome.refuted, minute)
      return unless outcome.finding

      tell(known?(outcome.finding) || keep(outcome.finding), outcome)
    end

    # An earlier finding has the same line, and its growth continues.
    def known?(finding)
      return unless finding.site

      Hunt.kept.find { |one| one.ended_at.nil? && one.site == finding.site && one.pid == finding.pid }
    end

    def keep(finding)
      Hunt.kept = [*Hunt.kept, finding].last(MOST_FINDINGS).freeze
      nil
    end

    def tell(known, outcome)
      finding = outcome.finding
      @series.cover((known || finding).identity, outcome.explained)
      return if known

      @courses[finding.identity] = outcome.course
      announce(finding) unless finding.slows_down
    end

    def announce(finding)
      log("#{finding.sentence}. #{finding.certainty} #{finding.advice}")
      @callback&.call(finding)
    end

    def find(cause) = Hunt.kept.find { |one| one.identity == cause }

    # @return [Finding, nil] with the changes; nil: it is no longer kept
    def change(cause, **changes)
      Hunt.kept = Hunt.kept.map { |one| one.identity == cause ? one.with(**changes) : one }.freeze
      find(cause)
    end

    def close_ended
      @series.ended.each do |cause|
        @courses.delete(cause)
        change(cause, ended_at: @clock.time)
      end
    end

    # A cache that fills up slows down and ends; growth that continues is confirmed.
    def confirm(reading)
      confirmed, open = @courses.partition { |_, course| course.confirmed?(reading) }
      @courses = open.to_h
      confirmed.each do |cause, _|
        finding = find(cause) or next
        finding = change(cause, confirmed_at: @clock.time, **@inquiry.again(finding, @tracker))
        announce(finding) if finding&.slows_down
      end
      open.each { |cause, _| put_off(cause) }
    end

    def put_off(cause)
      now = @clock.time
      finding = find(cause)
      return unless finding && finding.look_again_at <= now

      change(cause, look_again_at: now + (now - finding.found_at))
    end

    # An error of the program's logger must not end the hunt.
    def log(text)
      Background.visible { @target.write("memintro: #{text}", LogTarget.seen) }
    rescue Exception => e # rubocop:disable Lint/RescueException
      @target.tell_once(e)
    end
  end
end
