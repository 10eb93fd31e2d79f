# frozen_string_literal: true

require_relative "../support/sequential_interval"

module Memintro
  class Hunt
    # Tests suspicions with readings that come after them.
    #
    # A fast one must go on at half of its former pace at least. Each reading gives one rate; {SequentialInterval}
    # decides. Where a figure does not rise, a rate is above that limit by chance alone: in at most one of four, because
    # a rise whose steps vary more than that is no suspicion. So a figure that does not rise is taken for one that does
    # with a probability of at most 1 / (1 + 3 ** 5), below 1 in 240, for each suspicion.
    #
    # A slow one, of means over minutes or hours, shows in few readings no more than their noise. Its own steps decide,
    # which are more and must be surer ({Growth}); when it has been tracked, it must have gone on at half of its pace.
    #
    # @api private
    class Verdict
      # See {SequentialInterval}.
      LEAD = 5
      # Of the former pace, and of the growth that must be left.
      PART = 0.5
      private_constant :LEAD, :PART

      # @param suspects [Hash{Array => Growth::Rise}] the fastest first
      # @param reading [Hunt::Watch::Reading] after a collection; rates count from it
      def initialize(suspects, reading)
        @suspects = suspects.select { |key, rise| left?(key, rise, reading) }
        @first = @last = reading
        @count = 0
        @tests = @suspects.to_h do |key, rise|
          [key, rise.scale.zero? ? SequentialInterval.new(rise.slope * PART, LEAD, []) : nil]
        end
      end

      # @return [Hash{Array => Growth::Rise}] those that are no garbage
      attr_reader :suspects

      # @param reading [Hunt::Watch::Reading]
      # @return [nil]
      def add(reading)
        @tests.each { |key, test| test&.add(rate(key, @last, reading)) }
        @last = reading
        @count += 1
        nil
      end

      # Goes on from a reading after a collection, which is no rate.
      # @param reading [Hunt::Watch::Reading]
      # @return [nil]
      def restart_at(reading)
        @last = reading
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
            rate(key, @first, reading) >= rise.slope * PART
        end
      end

      private

      def left?(key, rise, reading)
        reading.figures.fetch(key, 0) - rise.from >= rise.growth * PART
      end

      def rate(key, before, after)
        (after.figures.fetch(key, 0) - before.figures.fetch(key, 0)).fdiv(after.minute - before.minute)
      end
    end
  end
end
