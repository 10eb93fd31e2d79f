# frozen_string_literal: true

module Memintro
  class RSSSampler
    # Keeps samples in a fixed number of places. The newest are kept one by one. If a level is full, its two oldest
    # points become one point of the next level, which covers twice as many samples. The points of the last level are
    # merged further, however many samples they cover, so that no sample is lost, and old points get coarser.
    #
    # The caller holds a lock to write. Reading needs no lock: a point is added to the next level before it is removed
    # from the previous one, and a reader that sees both uses the finer one.
    # @api private
    class Ring
      # Places of a level, and levels: together 57,232 samples, 32 hours at 2 s, before the last level is full.
      PLACES = 112
      # See {PLACES}.
      LEVELS = 9
      # Each point begins with the numbers of its first and last sample, and the time of each.
      HEAD = 4
      # For each figure: number of samples that have it, least, sum, greatest.
      WIDTH = 4

      def initialize
        @levels = Array.new(LEVELS) { [] }
        @next = 0
      end

      # @param time [Float]
      # @param values [Array<Integer, nil>] one for each figure
      # @param error [Integer, nil] standard error of the figure that is an estimate
      def add(time, values, error = nil)
        point = [@next, @next, time, time]
        values.each { |value| value ? point.push(1, value, value, value) : point.push(0, nil, 0, nil) }
        # Empty if all is exact: another place would let the array grow by half.
        point.push(error) if error
        @next += 1
        push(0, point)
      end

      # @return [Array<Array>] oldest first
      def points
        oldest = nil
        @levels.map(&:dup).reduce([]) do |newer, level|
          level = level.take_while { |point| point[1] < oldest } if oldest
          oldest = level.first[0] unless level.empty?
          level + newer
        end
      end

      private

      def push(number, point)
        level = @levels[number]
        if level.size == PLACES
          number == LEVELS - 1 ? thin(level) : hand_down(level, number)
        end
        level.push(point)
      end

      def hand_down(level, number)
        push(number + 1, merge(level[0], level[1]))
        level.shift(2)
      end

      # Merges pairs, which halves the points: once in 32 hours at first, then less and less often.
      def thin(level)
        level.replace(level.each_slice(2).map { |older, newer| merge(older, newer) })
      end

      def merge(older, newer)
        merged = [older[0], newer[1], older[2], newer[3]]
        figures = (older.size - HEAD) / WIDTH
        figures.times do |number|
          at = HEAD + (number * WIDTH)
          merged.push(older[at] + newer[at], [older[at + 1], newer[at + 1]].compact.min, older[at + 2] + newer[at + 2],
                      [older[at + 3], newer[at + 3]].compact.max)
        end
        error = [older, newer].filter_map { |point| point[HEAD + (figures * WIDTH)] }.max
        error ? merged.push(error) : merged
      end
    end
  end
end
