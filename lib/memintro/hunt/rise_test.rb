# frozen_string_literal: true

require_relative "../support/sequential_interval"
require_relative "../support/statistics"

module Memintro
  class Hunt
    # Tests suspicions with later readings.
    #
    # A fast rise must continue at half of its former pace or more. Each reading gives one rate; {SequentialInterval}
    # decides. If a figure does not rise, its rate exceeds that limit only by chance: in at most one of four readings,
    # because steps that vary more make no suspicion. So the probability of a false rise is at most 1 / (1 + 3 ** 5),
    # below 1 in 240, for each test of independent rates.
    #
    # Readings come at shorter intervals than looks, so noise hides more of a rise: many rates are below the limit
    # although the figure rises. So a second test takes the rates over two intervals, which have half as much noise.
    # In a simulation with as much noise as a suspicion may have, both tests together found a false rise in 1 of 107
    # figures; with less noise, in 1 of 1,000.
    #
    # A slow rise, of means over minutes or hours, is smaller than the noise of a few readings. Its own steps decide,
    # with a stricter limit ({Growth}); while it was tracked, it must have continued at half of its pace.
    #
    # @api private
    class RiseTest
      # See {SequentialInterval}.
      LEAD = 5
      # Least part of the former pace, and of the growth, that must remain.
      PART = 0.5
      # Less work needs less growth, down to this part.
      LEAST_WORK = 0.25
      # From this part of the former work on, the work counts as unchanged.
      SAME_WORK = 0.8
      # Standard errors that a mean of work may deviate.
      DOUBT = 2
      private_constant :LEAD, :PART, :LEAST_WORK, :SAME_WORK, :DOUBT

      # The readings of one figure: its rates over one interval and, with less noise, over two.
      class Test
        # @param limit [Numeric] units a minute
        # @param reading [Array(Numeric, Numeric)] minute and value
        def initialize(limit, reading)
          @limit = limit
          @fine, @coarse = Array.new(2) { SequentialInterval.new(limit, LEAD, []) }
          begin_at(reading)
        end

        # @return [nil]
        def begin_at(reading)
          @first = reading
          restart_at(reading)
        end

        # @return [nil]
        # @param work [Float] how much of the former work was done since the reading before, at most 1
        def add(reading, work = 1.0)
          @fine.add(Test.rate(@last, reading) / work)
          @last = reading
          @works << work
          return if @works.size.odd?

          @coarse.add(Test.rate(@pair, reading) * 2 / @works.last(2).sum)
          @pair = reading
          nil
        end

        # @return [nil]
        def restart_at(reading)
          @last = @pair = reading
          @works = []
          nil
        end

        # @return [Symbol, nil] `:above`, `:below`, or nil: more readings are needed
        def verdict
          return :above if [@fine, @coarse].any? { |test| test.verdict == :above }

          :below if @coarse.verdict == :below || (@fine.verdict == :below && Test.rate(@first, @last) < @limit)
        end

        # @return [Float] units a minute
        def self.rate(before, after)
          (after[1] - before[1]).fdiv(after[0] - before[0])
        end
      end

      # The course of a figure after the investigation, which gives `from` and `pace`. It is confirmed when it has
      # grown by the same amount again, at a part of its pace. A cache that fills up with a time constant of less than
      # a quarter of an hour is full before that.
      Course = Struct.new(:key, :minute, :from, :grown, :pace) do
        # @return [Float] minutes to that at this pace
        def minutes = grown / pace

        # @param reading [Hunt::Watch::Reading] a later one
        # @return [Boolean]
        def confirmed?(reading)
          more = reading.figures.fetch(key, 0) - from
          more >= grown && more >= PART * pace * (reading.minute - minute)
        end
      end

      # @param suspects [Hash{Array => Growth::Rise}] the fastest first
      # @param reading [Hunt::Watch::Reading] after a collection; rates count from it
      def initialize(suspects, reading)
        @suspects = suspects.select { |key, rise| left?(key, rise, reading) }
        @first = reading
        @count = 0
        @works = @suspects.transform_values { [] }
        @loads = @suspects.transform_values { [] }
        @tests = @suspects.to_h do |key, rise|
          [key, rise.scale.zero? ? Test.new(rise.slope * PART, point(key, reading)) : nil]
        end
      end

      # @return [Hash{Array => Growth::Rise}] those that are no garbage
      attr_reader :suspects

      # @param reading [Hunt::Watch::Reading]
      # @return [nil]
      def add(reading)
        @tests.each do |key, test|
          load = load(key, reading)
          @loads[key] << load
          @works[key] << (work = load.clamp(LEAST_WORK, 1.0))
          test&.add(point(key, reading), work)
        end
        @count += 1
        nil
      end

      # Rates count from this reading on.
      # @param reading [Hunt::Watch::Reading]
      # @return [nil]
      def begin_at(reading)
        @first = reading
        @tests.each { |key, test| test&.begin_at(point(key, reading)) }
        nil
      end

      # Continues from a reading after a collection, which gives no rate.
      # @param reading [Hunt::Watch::Reading]
      # @return [nil]
      def restart_at(reading)
        @tests.each { |key, test| test&.restart_at(point(key, reading)) }
        nil
      end

      # @return [Boolean] whether the fastest open figure is decided, or none is left
      def decided?
        open = @tests.values.reject { |test| test && test.verdict == :below }
        return true if open.empty?

        open.first ? open.first.verdict == :above : @count >= LEAD
      end

      # @param reading [Hunt::Watch::Reading] after a collection, as the first one
      # @return [Hash{Array => Growth::Rise}] rising figures, the fastest first
      def rising(reading)
        @suspects.select do |key, rise|
          test = @tests[key]
          (test.nil? || test.verdict == :above) && left?(key, rise, reading) &&
            rate(key, @first, reading) >= rise.slope * PART * mean(@works[key])
        end
      end

      # @param key [Array] of a figure that rises
      # @return [Boolean] whether the work is significantly less than in the time of the rise
      def slows?(key)
        loads = @loads[key]
        mean, error = loads.size > 1 ? Statistics.mean_and_error(loads) : [mean(loads), 0]
        mean < SAME_WORK && mean + (DOUBT * error) < 1
      end

      # @param key [Array]
      # @param reading [Hunt::Watch::Reading] the last one
      # @return [Course]
      def course(key, reading)
        rise = @suspects[key]
        value = reading.figures.fetch(key, 0)
        Course.new(key, reading.minute, value, value - rise.from, [rate(key, @first, reading), rise.slope].min)
      end

      private

      def mean(parts) = parts.empty? ? 1.0 : parts.sum / parts.size

      # @return [Float] the load relative to the time of the rise; 1 if it is unknown
      def load(key, reading)
        rise = @suspects[key]
        rise.load && reading.load ? reading.load / rise.load : 1.0
      end

      def left?(key, rise, reading)
        reading.figures.fetch(key, 0) - rise.from >= rise.growth * PART
      end

      def point(key, reading)
        [reading.minute, reading.figures.fetch(key, 0)]
      end

      def rate(key, before, after)
        Test.rate(point(key, before), point(key, after))
      end
    end
  end
end
