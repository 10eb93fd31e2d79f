# frozen_string_literal: true

require_relative "finding"
require_relative "rise_test"

module Memintro
  class Hunt
    # Investigates rising figures: collects garbage, tracks allocations for a bounded time to find the line, tests
    # whether the figures still rise, and asks for the holders.
    #
    # @api private
    class Investigation
      # Readings while it tracks; after so many there is no verdict.
      MOST_READINGS = 18
      # Fewest collections of young garbage between two readings: after these an object is old.
      AGES = 3
      # The reading after which there is a collection, so that the second part shows continued growth.
      FIRST_PART = 2
      # Seconds between two readings, as a part of those between looks, and at most.
      PART = 1.0 / 3
      LONGEST = 300
      # Least wait as a part of these seconds, after a reading of any length.
      LEAST_REST = 0.5
      # Memory outside of Ruby's heap is a separate cause if it grows this many times as fast as the figures that Ruby
      # knows.
      BEYOND_RUBY = 2
      # Least part of the growth that its line must have.
      LEAST_SHARE = 0.25
      # An end of the test is no longer expected after this multiple of the time that it would take at the
      # investigation's pace.
      PATIENCE = 1.5
      private_constant :MOST_READINGS, :FIRST_PART, :AGES, :PART, :LONGEST, :LEAST_REST, :BEYOND_RUBY, :LEAST_SHARE,
                       :PATIENCE

      # The outcome: a finding or none, its course, the figures that it explains with their rises, and the figures
      # that do not rise.
      Outcome = Struct.new(:finding, :course, :explained, :refuted)

      # @param watch [Watch]
      # @param tracker [Tracker]
      # @param inquiry [Inquiry] answers for holders and kinds of memory
      # @param clock [Clock]
      # @param every [Numeric] seconds between looks
      def initialize(watch, tracker, inquiry, clock, every)
        @watch = watch
        @tracker = tracker
        @inquiry = inquiry
        @clock = clock
        @every = every
      end

      # @param suspects [Hash{Array => Growth::Rise}]
      # @yieldparam seconds [Numeric] to be waited for, without being charged
      # @yieldreturn [Boolean] whether to give up
      # @return [Outcome, nil] nil: it was given up
      def run(suspects, &wait)
        begun = collected
        @verdict = RiseTest.new(own_of(suspects), begun)
        held = @verdict.suspects
        return Outcome.new(nil, nil, {}, suspects.keys) if held.empty?

        is_outside = held.keys.any? { |kind, _| kind == :outside }
        @inquiry.note_stacks if is_outside
        @watch.own { @tracker.start_tracking(followed(held)) }
        # The memory of the start itself is no growth.
        @verdict.begin_at(begun = @watch.read(minute)) if is_outside
        outcome = test(held, begun, &wait)
        outcome&.refuted&.concat(suspects.keys - held.keys)
        outcome
      ensure
        @watch.own { @tracker.stop_tracking }
      end

      private

      # Classes whose objects lead to the line. Memory outside of Ruby's heap may be stacks.
      def followed(held)
        classes = held.keys.filter_map { |kind, name| name if kind == :class }
        held.keys.any? { |kind, _| kind == :outside } ? classes | Inquiry::STACKS.values : classes
      end

      def collected
        @watch.collect
        @watch.read(minute)
      end

      def minute = @clock.now / 60.0

      def test(held, begun, &wait)
        begin_part(begun)
        seconds = seconds(held)
        due = @clock.now
        given_up = (1..MOST_READINGS).find do |number|
          break if @verdict.decided?

          # Regular intervals: in a busy process a reading may take seconds.
          due = [due + seconds, @clock.now + (seconds * LEAST_REST)].max
          next true if pass(due, &wait)

          @verdict.add(@watch.read(minute))
          middle if number == FIRST_PART
          false
        end
        return if given_up

        @last = collected
        conclude(held, @verdict.rising(@last))
      end

      # @return [Boolean] whether to give up
      def pass(due)
        AGES.downto(1) do |left|
          return true if yield([due - @clock.now, 0].max.fdiv(left))

          @watch.age if left > 1
        end
        false
      end

      # A slow rise is tracked for longer, because its line makes too little in a few minutes.
      def seconds(held)
        [@every * PART * (2**held.values.first.scale), LONGEST].min
      end

      def middle
        reading = collected
        @verdict.restart_at(reading)
        begin_part(reading)
      end

      # Lines that keep on growing do so in the second part, too.
      def begin_part(reading)
        @middle_minute = reading.minute
        @middle = @tracker.lines
      end

      def conclude(held, rising)
        rising = own_of(rising)
        key = rising.keys.first
        return Outcome.new(nil, nil, {}, held.keys) unless key

        made = cause(key, rising[key])
        explained = rising.select do |other, _|
          other == key || explains?(key, other, made) || one_call?(key, other, made)
        end
        course = @verdict.course(key, @last)
        Outcome.new(finding(key, rising[key], made, explained.keys - [key], course), course, explained,
                    held.keys - rising.keys)
      end

      # Memory that objects have from malloc also grows outside of Ruby's heap. That row is the cause only if it grows
      # much faster than the figures that Ruby knows.
      def own_of(rising)
        outside, known = rising.partition { |(kind, _), _| kind == :outside }
        ruby = known.sum { |_, rise| rise.slope }
        beyond, along = outside.partition { |_, rise| rise.slope > BEYOND_RUBY * ruby }
        [*beyond, *known, *along].to_h
      end

      # @return [Array(CallSite, Integer, Array<String>), nil]
      def cause((kind, name), rise)
        after = @tracker.lines
        return site_of(name, after) if kind == :site

        found = @tracker.fastest(@middle, after, kind == :class ? [name] : [])
        found if found && found[1] >= LEAST_SHARE * rise.slope * (@last.minute - @middle_minute)
      end

      def site_of(name, after)
        site = after[name] or return
        [site, Tracker.held(site) - (@middle[name] ? Tracker.held(@middle[name]) : 0), []]
      end

      # Whether the line that makes one also makes the other.
      def explains?((kind, _), (other, name), made)
        return true if other == :outside
        return false unless made

        site, _, classes = made
        other == :class ? kind == :class && classes.include?(name) : other == :site && name == site.name
      end

      # For a call, Ruby makes some internal objects at the line of the callee, and others at the line of the caller.
      def one_call?((_, name), (_, other), made)
        return false unless made && [name, other].all? { |one| one.start_with?(Inquiry::INTERNAL) }

        line, = @tracker.fastest(@middle, @tracker.lines, [other])
        line && [[line, made[0]], [made[0], line]].any? do |outer, inner|
          @tracker.stack(inner).any? { |frame| frame == outer.name || frame.start_with?("#{outer.name}:") }
        end
      end

      # The line that makes objects of a class, while they are followed.
      def line_of(name)
        @made_of = @tracker.fastest(@middle, @tracker.lines, [name])
        @made_of&.first if @made_of&.last&.include?(name)
      end

      # The innermost line of a file, if the first one of the stack is in none.
      def called_from(stack)
        lines = stack.map { |frame| frame[/\A.*?:\d+/] }.compact
        in_file = lines.index { |line| File.file?(line[/\A(.*):\d+\z/, 1]) }
        lines[in_file] if in_file&.positive?
      rescue ArgumentError
        nil # a path with a null byte
      end

      def finding(key, rise, made, also, course)
        kind, name = key
        site, bytes, = made
        facts = @inquiry.about(kind, name, site, @tracker) { |of| line_of(of) }
        site, bytes = @made_of if facts[:line]
        site = nil if facts[:no_line]
        stack = site ? @tracker.stack(site) : []
        now = @clock.now
        Finding.new(
          what: facts.fetch(:what), kind: facts.fetch(:kind), bytes_per_minute: rise.slope.round,
          bytes_per_minute_interval: [rise.low.round, rise.high.round],
          grown_bytes: (@last.figures.fetch(key, 0) - rise.from).round,
          since: @clock.time - (now - (rise.since * 60)), found_at: @clock.time, ended_at: nil,
          slows_down: rise.slows || @verdict.slows?(key), confirmed_at: nil,
          look_again_at: @clock.time + (course.minutes * 60 * PATIENCE),
          objects: facts[:objects], site: site&.name, called_from: site && called_from(stack),
          site_bytes: site && bytes, stack: stack,
          held_by: facts[:held_by], holders: facts.fetch(:holders, []), verdict: facts[:verdict],
          also: also.map { |_, other| other }.uniq, notes: facts.fetch(:notes), tracking: @tracker.words,
          pid: Native.pid
        )
      end
    end
  end
end
