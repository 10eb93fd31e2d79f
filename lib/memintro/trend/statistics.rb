# frozen_string_literal: true

module Memintro
  class Trend
    # The two formulas: how fast a series grows, and how sure it is that it does. Neither assumes a distribution, and
    # neither is led astray by single values that stand out.
    # @api private
    module Statistics
      # Up to so many values without ties, all their orders are counted instead of approximated.
      EXACT = 10
      private_constant :EXACT

      # Theil and Sen's slope: the median of the slopes between all pairs of values.
      #
      # @param times [Array<Numeric>] ascending
      # @param values [Array<Numeric>]
      # @return [Float] in units of value by units of time; 0.0 where no two times differ
      def self.slope(times, values)
        slopes = pairs(values.size).filter_map do |i, j|
          (values[j] - values[i]).fdiv(times[j] - times[i]) if times[j] > times[i]
        end
        slopes.empty? ? 0.0 : median(slopes)
      end

      # Mann and Kendall's test against no trend, one-sided. Where values depend on those before, as levels of memory
      # do, their order says less than it seems to: Hamed and Rao's correction (1998) widens the variance accordingly.
      #
      # @param values [Array<Numeric>] in the order of their times
      # @return [Float] from 0 to 1: one less the probability that values without a trend rise so steadily
      def self.confidence(values)
        size = values.size
        score = pairs(size).sum { |i, j| values[j] <=> values[i] }
        ties = values.tally.values.select { |count| count > 1 }
        return exact(size, score) if size <= EXACT && ties.empty?

        variance = terms(size) - ties.sum { |count| terms(count) }
        return 0.5 unless variance.positive?

        normal((score <=> 0) * [score.abs - 1, 0].max / Math.sqrt(variance * correction(values)))
      end

      # @return [Float]
      def self.median(values)
        sorted = values.sort
        middle = sorted.size / 2
        (sorted.size.odd? ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2.0).to_f
      end

      def self.pairs(size)
        (0...size).to_a.combination(2)
      end
      private_class_method :pairs

      def self.terms(count)
        count * (count - 1) * ((2 * count) + 5) / 18.0
      end
      private_class_method :terms

      # Of all orders of so many different values, those with a lower score.
      def self.exact(size, score)
        # orders[n]: how many orders have n pairs the wrong way round.
        orders = (1..size).reduce([1]) do |counts, length|
          Array.new(counts.size + length - 1) { |n| (0...length).sum { |k| n >= k ? counts[n - k].to_i : 0 } }
        end
        wrong = ((size * (size - 1) / 2) - score) / 2
        1.0 - orders.first(wrong + 1).sum.fdiv(orders.sum)
      end
      private_class_method :exact

      def self.normal(deviation)
        1.0 - (0.5 * Math.erfc(deviation / Math.sqrt(2)))
      end
      private_class_method :normal

      # Never below 1: it shall make nobody surer.
      def self.correction(values)
        size = values.size
        return 1.0 if size <= EXACT

        slope = slope((0...size).to_a, values)
        ranks = ranks(values.each_with_index.map { |value, i| value - (slope * i) })
        sum = (1..(size - 3)).sum do |lag|
          found = autocorrelation(ranks, lag)
          found > 1.645 / Math.sqrt(size) ? (size - lag) * (size - lag - 1) * (size - lag - 2) * found : 0
        end
        1 + (2.0 * sum / (size * (size - 1) * (size - 2)))
      end
      private_class_method :correction

      def self.ranks(values)
        order = values.each_index.sort_by { |i| [values[i], i] }
        order.each_with_index.with_object(Array.new(values.size)) { |(i, rank), ranks| ranks[i] = rank }
      end
      private_class_method :ranks

      def self.autocorrelation(values, lag)
        mean = values.sum.fdiv(values.size)
        whole = values.sum { |value| (value - mean)**2 }
        (0...(values.size - lag)).sum { |i| (values[i] - mean) * (values[i + lag] - mean) } / whole
      end
      private_class_method :autocorrelation
    end
  end
end
