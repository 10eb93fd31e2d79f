# frozen_string_literal: true

require_relative "../support/sequential_interval"
require_relative "../support/statistics"

module Memintro
  class Hunt
    # Decides whether the values of one figure rise. It keeps them at several scales: single values, means of two, of
    # four and so on. A fast leak shows at the first scale within minutes, a slow one at a later scale.
    #
    # A rise is a suspicion, not yet a finding: {RiseTest} tests it again with later values.
    #
    # @api private
    class Growth
      # A suspicion: its first and last time, its first and last value, units a minute with their interval, the scale,
      # the work in that time, if it is known, and whether the figure slows down with the work.
      Rise = Struct.new(:since, :till, :from, :to, :slope, :low, :high, :scale, :load, :slows) do
        # @return [Numeric]
        def growth = to - from
      end

      # Steps in the beginning that may differ from all others.
      MOST_FIRST = 3
      # Values of a scale that are kept, those that are tested at a time, and scales: the last has means of 17 hours.
      MOST = 12
      WINDOWS = [6, 7, 8, 9, 10, 11, 12].freeze
      SCALES = 11
      # Student's quantiles by the number of steps: for 99.9%, of both sides; for 99.998% at all scales but the first.
      STUDENT = { 5 => 8.610, 6 => 6.869, 7 => 5.959, 8 => 5.408, 9 => 5.041, 10 => 4.781, 11 => 4.587 }.freeze
      SLOW_STUDENT = { 9 => 8.907, 10 => 8.102, 11 => 7.527 }.freeze
      # By how much steps up must outnumber steps down. See {SequentialInterval}. At later scales, no values come soon
      # that could refute a rise.
      LEAD = 5
      SLOW_LEAD = 9
      # A figure that slows down more than this from the first half of the steps to the second one fills up, like a
      # cache.
      LEAST_PACE = 0.6
      # The same limit for a significant slowdown, from the first step to the last one.
      SLOWER = 0.2
      # Most growth, relative to that of the work, that the work explains.
      LOAD_FACTOR = 1.25
      # Fewest values for which an error can be computed.
      FEWEST_LOADS = 4
      # Standard errors that a slope may deviate.
      DOUBT = 2
      private_constant :MOST_FIRST, :MOST, :WINDOWS, :SCALES, :STUDENT, :SLOW_STUDENT, :LEAD, :SLOW_LEAD, :LEAST_PACE,
                       :SLOWER, :LOAD_FACTOR, :DOUBT, :FEWEST_LOADS

      def initialize
        @scales = []
        @halves = []
        @fresh = 0
      end

      # @param minute [Numeric] later than the one before
      # @param value [Numeric]
      # @param load [Numeric, nil] work of the process since the value before; nil: unknown
      # @return [self]
      def add(minute, value, load)
        @fresh = 0
        @begun ||= minute
        put(0, [minute, value, load])
        self
      end

      # @param least [Numeric] a smaller growth does not matter
      # @param resident [Numeric] most that can be in use: the rest of a greater value is only reserved
      # @return [Rise, nil] at the finest scale that has a new value and shows one
      def rise(least, resident = Float::INFINITY)
        @scales.first(@fresh).each_with_index do |values, scale|
          # Most figures have not grown, and end here: a hunt checks hundreds of them each time.
          next unless grown?(values, least)

          # The first steps may be greater than all others, because the program or the hunt itself has just started.
          (0..MOST_FIRST).each do |first|
            found = rise_of(values.drop(first), values, least, resident, scale)
            return found if found
          end
        end
        nil
      end

      # @param scale [Integer]
      # @param fewest [Integer] values
      # @return [Float, nil] units a minute, of the newest values; nil: there are too few
      def pace(scale = 0, fewest: WINDOWS.first)
        values = @scales[scale]
        return unless values && values.size >= fewest

        Statistics.slope(values.map { |one| one[0] }, values.map { |one| one[1] })
      end

      # @param scale [Integer]
      # @return [Float, nil] work a minute in the time of these values, where it is known
      def load(scale = 0) = load_of(@scales.fetch(scale, []))

      private

      def load_of(values)
        known = values.filter_map { |one| one[2] }
        known.sum.fdiv(known.size) if known.any?
      end

      def put(scale, entry)
        values = (@scales[scale] ||= [])
        values << entry
        values.shift if values.size > MOST
        @fresh = scale + 1
        return if scale + 1 == SCALES

        half = @halves[scale]
        @halves[scale] = half ? nil : entry
        put(scale + 1, [mean(half[0], entry[0]), mean(half[1], entry[1]), mean(half[2], entry[2])]) if half
      end

      # @return [Float, nil] from the known ones of the two
      def mean(one, other)
        one && other ? (one + other).fdiv(2) : one || other
      end

      # Whether any of the windows has grown by this amount.
      def grown?(values, least)
        newest = values.last[1]
        WINDOWS.any? { |size| (oldest = values[-size]) && newest - oldest[1] >= least }
      end

      def rise_of(values, all, least, resident, scale)
        windows = windows(values, least)
        return if windows.empty?

        courses = courses(values)
        return if fills_up?(courses)

        windows.each do |window|
          found = test(window, courses.map { |course| course.last(window.size - 1) }, scale)
          return found if found && !explained?(all, found, resident)
        end
        nil
      end

      # The ends of windows that have grown by this amount.
      def windows(values, least)
        sizes = WINDOWS.select { |size| size <= values.size && values.last[1] - values[-size][1] >= least }
        sizes.map { |size| values.last(size) }
      end

      def test(values, courses, scale)
        rates, = courses
        return unless (scale.zero? ? STUDENT : SLOW_STUDENT).key?(rates.size)
        return unless SequentialInterval.new(0, scale.zero? ? LEAD : SLOW_LEAD, rates).verdict == :above
        return if fills_up?(courses)

        slope, margin = pace_of(courses, scale.zero? ? STUDENT : SLOW_STUDENT)
        return if slope <= margin

        Rise.new(values.first[0], values.last[0], values.first[1], values.last[1], slope, slope - margin,
                 slope + margin, scale, load_of(values.drop(1)), slows?(rates))
      end

      # The work of a start differs from later work.
      #
      # @return [Array<Array<Float>>] the steps a minute; if all loads are known, also these, and steps for as much work
      def courses(values)
        rates = values.each_cons(2).map { |before, after| (after[1] - before[1]).fdiv(after[0] - before[0]) }
        loads = values.drop(1).map { |one| one[2] }
        return [rates] unless values.first[0] > @begun && loads.all? { |load| load&.positive? }

        [rates, loads, rates.zip(loads).map { |rate, load| rate / load }]
      end

      # Steps vary with the work, so steps per unit of work may vary less. Both tests are valid.
      def pace_of((rates, loads, of_work), student)
        paces = [mean_of(rates, student)]
        paces << mean_of(of_work, student).map { |figure| figure * loads.sum / loads.size } if loads
        paces.max_by { |slope, margin| slope - margin }
      end

      # Steps of values around a constant level cancel out. So Student's test of the steps takes such a level for
      # growth less often than its nominal rate, however strongly successive values correlate; for a random walk the
      # rate is exact.
      def mean_of(rates, student)
        mean, error = Statistics.mean_and_error(rates)
        [mean, student.fetch(rates.size) * error]
      end

      # A program that starts, or a cache that fills up, slows down, and not only because its work decreases.
      def fills_up?((rates, loads, of_work))
        slows?(rates) && !(loads && slows?(loads) && !slows?(of_work))
      end

      # By much, or significantly.
      def slows?(rates)
        half = rates.size / 2
        return true if rates.last(half).sum < LEAST_PACE * rates.first(half).sum

        slope, error = line((0...rates.size).to_a, rates)
        slope + (DOUBT * error) < 0 && -slope * (rates.size - 1) > SLOWER * rates.sum / rates.size
      end

      # More requests need proportionally more memory. The number of allocated objects measures them at no cost: in
      # the time of the rise, and in the whole history, where noise matters less.
      def explained?(values, rise, resident)
        during = values.select { |one| one[0] >= rise.since }
        level = [during.sum { |one| one[1] }.fdiv(during.size), resident].min
        [during, values].any? do |some|
          some = some.select { |one| one[2] }
          next if some.size < FEWEST_LOADS

          loads = some.map { |one| one[2] }
          mean = loads.sum.fdiv(loads.size)
          mean.positive? && rise.low <= LOAD_FACTOR * level * most_pace(some.map { |one| one[0] }, loads) / mean
        end
      end

      # The fastest rise that these values allow.
      def most_pace(minutes, loads)
        slope, error = line(minutes, loads)
        slope + (DOUBT * error)
      end

      # @return [Array(Float, Float)] slope of a line through the values, and its standard error
      def line(times, values)
        middle = times.sum.fdiv(times.size)
        level = values.sum.fdiv(values.size)
        times = times.map { |time| time - middle }
        values = values.map { |value| value - level }
        spread = times.sum { |time| time * time }
        slope = times.each_index.sum { |i| times[i] * values[i] } / spread
        rest = times.each_index.sum { |i| (values[i] - (slope * times[i]))**2 }
        [slope, Math.sqrt(rest / (times.size - 2) / spread)]
      end
    end
  end
end
