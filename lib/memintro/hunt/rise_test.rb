# frozen_string_literal: true

require_relative "../support/sequential_interval"
require_relative "../support/statistics"

module Memintro
  class Hunt
    # Tests suspicions with readings that come after them.
    #
    # A fast one must go on at half of its former pace at least. Each reading gives one rate; {SequentialInterval}
    # decides. Where a figure does not rise, a rate is above that limit by chance alone: in at most one of four, because
    # a rise whose steps vary more than that is no suspicion. So a figure that does not rise is taken for one that does
    # with a probability of at most 1 / (1 + 3 ** 5), below 1 in 240, for each test of independent rates.
    #
    # Readings follow each other sooner than looks, so what varies about a level hides more of what rises: many rates
    # are below the limit though the figure rises. The same test is made of rates from each second reading to the next.
    # These vary half as much about a level. In a simulation of figures that vary as much as a suspicion may, both tests
    # together took 1 in 107 that did not rise for one that does; of less noise, 1 in 1,000.
    #
    # A slow one, of means over minutes or hours, shows in few readings no more than their noise. Its own steps decide,
    # which are more and must be surer ({Growth}); when it has been tracked, it must have gone on at half of its pace.
    #
    # @api private
    class RiseTest
      # See {SequentialInterval}.
      LEAD = 5
      # Parts of the former pace, and of the growth, that must be left.
      PART = 0.5
      # With less work, less growth is enough, down to this part.
      LEAST_WORK = 0.25
      # With so much of the former work, it has not become less.
      SAME_WORK = 0.8
      # Standard errors by which a mean of work may be off.
      DOUBT = 2
      private_constant :LEAD, :PART, :LEAST_WORK, :SAME_WORK, :DOUBT

      # The readings of one figure: its rates from one to the next, and, with less noise, from one to the next but one.
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

      # How a figure went on. It is confirmed when it has grown as much again, at a part of its pace: what fills up with
      # a time constant of less than a quarter of an hour is full before. `from` and `pace` are of the investigation.
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
          [key, rise.scale.zero? ? Test.new(rise.slope * PART, of(key, reading)) : nil]
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
          test&.add(of(key, reading), work)
        end
        @count += 1
        nil
      end

      # Rates count from this reading on.
      # @param reading [Hunt::Watch::Reading]
      # @return [nil]
      def begin_at(reading)
        @first = reading
        @tests.each { |key, test| test&.begin_at(of(key, reading)) }
        nil
      end

      # Goes on from a reading after a collection, which is no rate.
      # @param reading [Hunt::Watch::Reading]
      # @return [nil]
      def restart_at(reading)
        @tests.each { |key, test| test&.restart_at(of(key, reading)) }
        nil
      end

      # @return [Boolean] whether the fastest that may rise is decided, or none is left
      def decided?
        open = @tests.values.reject { |test| test && test.verdict == :below }
        return true if open.empty?

        open.first ? open.first.verdict == :above : @count >= LEAD
      end

      # @param reading [Hunt::Watch::Reading] after a collection, as the first one
      # @return [Hash{Array => Growth::Rise}] what rises, the fastest first
      def rising(reading)
        @suspects.select do |key, rise|
          test = @tests[key]
          (test.nil? || test.verdict == :above) && left?(key, rise, reading) &&
            rate(key, @first, reading) >= rise.slope * PART * mean(@works[key])
        end
      end

      # @param key [Array] of a figure that rises
      # @return [Boolean] whether less work was done than in the time of the rise, and not by chance
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

      # @return [Float] as a part of the load in the time of the rise; 1 if it is unknown
      def load(key, reading)
        rise = @suspects[key]
        rise.load && reading.load ? reading.load / rise.load : 1.0
      end

      def left?(key, rise, reading)
        reading.figures.fetch(key, 0) - rise.from >= rise.growth * PART
      end

      def of(key, reading)
        [reading.minute, reading.figures.fetch(key, 0)]
      end

      def rate(key, before, after)
        Test.rate(of(key, before), of(key, after))
      end
    end
  end
end
