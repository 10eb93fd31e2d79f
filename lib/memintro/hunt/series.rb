# frozen_string_literal: true

require_relative "growth"

module Memintro
  class Hunt
    # All figures that a hunt watches. It finds the rising ones, and leaves out a figure that belongs to a finding
    # while it still rises. After a refuted rise it leaves the figure out for a while, longer each time.
    #
    # @api private
    class Series
      # Least rise that matters, as a part of RSS and in bytes.
      LEAST_SHARE = 0.01
      LEAST_BYTES = 1 << 20
      # Minutes for which a figure is left out after its rise was refuted: at first, and at most.
      REST = 10
      LONGEST_REST = 240
      # A rise slower than this part of the found pace has ended; with less work, a smaller part applies.
      ENDED = 0.1
      # Part of memory outside of Ruby's heap: if known figures seem to rise by this much, the hunt waits for them.
      EARLY = 0.5
      private_constant :EARLY, :LEAST_SHARE, :LEAST_BYTES, :REST, :LONGEST_REST, :ENDED

      def initialize
        @growths = {}
        @rests = {}
        @covered = {}
      end

      # @return [Integer]
      def size = @growths.size

      # @param reading [Reading]
      # @return [nil]
      def add(reading)
        # A figure that is not in the reading has become small. Its values would not be one course.
        @growths.select! { |key, _| reading.figures.key?(key) } unless reading.partial
        reading.figures.each do |key, value|
          (@growths[key] ||= Growth.new).add(reading.minute, value, reading.load)
        end
        nil
      end

      # @param reading [Reading] the newest
      # @return [Hash{Array => Growth::Rise}] rising figures without a finding, the fastest first
      def rising(reading)
        least = [LEAST_BYTES, (reading.rss * LEAST_SHARE).ceil].max
        found = @growths.filter_map do |key, growth|
          next if @covered.key?(key) || resting?(key, reading.minute)

          rise = growth.rise(least, reading.rss)
          [key, rise] if rise
        end
        found.sort_by { |_, rise| -rise.slope }.to_h.then { |rises| early?(rises) ? {} : rises }
      end

      # @param keys [Array] of figures whose rise was refuted
      # @param minute [Numeric]
      # @return [nil]
      def refute(keys, minute)
        keys.each do |key|
          rest = [(@rests[key]&.last || (REST / 2)) * 2, LONGEST_REST].min
          @rests[key] = [minute + rest, rest]
        end
        # Values before and after a collection are not one course.
        forget(keys)
      end

      # @param cause [Object] of a finding
      # @param rises [Hash{Array => Growth::Rise}] the figures that it explains
      # @return [nil]
      def cover(cause, rises)
        rises.each { |key, rise| @covered[key] = [cause, rise] }
        forget(rises.keys)
      end

      # @return [Array] causes none of whose figures rises any more
      def ended
        slow = @covered.select { |key, (_, rise)| @growths[key].nil? || slower?(@growths[key], rise) }.keys
        gone = slow.map { |key| @covered.delete(key).first }
        gone.uniq - @covered.values.map(&:first)
      end

      private

      # Whether only memory outside of Ruby's heap seems to rise, and more specific figures are about to show a rise.
      def early?(rises)
        return false if rises.empty? || rises.keys.any? { |kind, _| kind != :outside }

        # Some figures came after the first look and have fewer values.
        known = @growths.sum { |(kind, _), growth| kind == :outside ? 0 : [growth.pace(fewest: 3).to_f, 0].max }
        known > EARLY * rises.values.first.slope
      end

      def slower?(growth, rise)
        pace = growth.pace(rise.scale)
        work = rise.load && growth.load(rise.scale)
        pace && pace < rise.slope * ENDED * (work ? [work / rise.load, 1].min : 1)
      end

      def resting?(key, minute)
        till, = @rests[key]
        till && minute < till
      end

      def forget(keys)
        keys.each { |key| @growths[key] &&= Growth.new }
        nil
      end
    end
  end
end
