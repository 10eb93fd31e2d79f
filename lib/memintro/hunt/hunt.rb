# frozen_string_literal: true

require_relative "../logging/log_target"
require_relative "../runtime/background"
require_relative "../support/arguments"
require_relative "../support/list"
require_relative "../support/untracked_text"

module Memintro
  # Before its parts, which open it and would have Ruby ask for this file again.
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
  # A hunt for what grows: the result of {Memintro.hunt}. A thread of memintro's own looks at the process every so many
  # seconds. It takes at most 0.2% of a core: {#cpu_share} says how much it has taken, and {#pause} how long it waits
  # for the next look. It goes on in each forked child, which has the findings of its parent.
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
    # It waits for this part of {#every} at least, however long a look took.
    LEAST_REST = 0.5
    private_constant :SECONDS, :THREAD_NAME, :LEAST_REST

    # @return [Numeric] seconds from one look to the next; more if a look is dear
    attr_reader :every
    # @return [Symbol] `:stopped`, `:watching` or `:investigating`
    attr_reader :state
    # @return [Integer] looks so far, in this process
    attr_reader :looks
    # @return [Integer] investigations so far, in this process
    attr_reader :investigations
    # @return [Integer] looks that have failed, in this process
    attr_reader :errors
    # @return [Exception, nil] how a look failed the last time
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

      # Begins to hunt, or gives the hunt that has just this to do.
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
        # Also ends tracking that was busy the last time.
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

    # Ends it at once, and the tracking that it has started. Findings stay readable. Does nothing the second time. May
    # be called in a signal handler.
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

    # @return [Float] seconds of processor time that it has taken in this process, with that of copies of the process
    def cpu_seconds = @budget.spent

    # @return [Float] what it has taken of one core since it began in this process, from 0 to 1. No look begins while it
    #   is above 0.002, but those at the times that findings name; an investigation may raise it beyond that for a while
    def cpu_share = @budget.share

    # @return [Float] seconds that it waits before the next look
    def pause = [@every.to_f, repaid].max

    # @return [Float, nil] seconds until it looks again; nil while it looks or investigates, and when it is stopped
    def next_look
      due = @due
      due && [due - @clock.now, 0.0].max if @state == :watching
    end

    # @return [Array<String>] what it investigates now: classes, files of compiled code, or `malloc`, which is all
    #   memory outside of Ruby's heap
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
        # If it could not be ended when its investigation was over.
        @tracker.stop_tracking
        reading = @watch.read(minute)
        @looks += 1
        @series.add(reading)
        close_ended
        confirm(reading)
        suspects = @series.rising(reading)
        # A look that a finding has named may come before the last investigation is paid back.
        investigate(suspects, stop) unless suspects.empty? || @budget.pause(0).positive?
      end
      nil
    end

    private

    # Also in a forked child, where the figures of its parent do not hold.
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

    # Looks begin at even distances, although in a busy process one may take seconds.
    def rest(begun)
      [@every - (@clock.now - begun), @every * LEAST_REST, repaid].max
    end

    # Until the budget is paid back; but at the time that a finding names, it looks.
    def repaid
      again = @courses.filter_map { |cause, _| find(cause)&.look_again_at }.min
      [@budget.pause(0), (again - @clock.time if again)].compact.min
    end

    # What failed may work the next time; who would notice that the thread has ended?
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

    # The same line makes what was found before, and that goes on.
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

    # @return [Finding, nil] with the changes; nil: it is kept no more
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

    # What fills up slows down and ends; what goes on is confirmed.
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

    # Nothing that the program's logger does may end the hunt.
    def log(text)
      Background.visible { @target.write("memintro: #{text}", LogTarget.seen) }
    rescue Exception => e # rubocop:disable Lint/RescueException
      @target.tell_once(e)
    end

    # See Lazy.
    LOADED = Lazy
    private_constant :LOADED
  end
end
