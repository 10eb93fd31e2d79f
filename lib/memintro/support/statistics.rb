# frozen_string_literal: true

module Memintro
  # How fast a series grows, and how certain the growth is. Single outliers do not change the result much.
  # @api private
  module Statistics
    # Up to this many values without ties, all their orders are counted; above, the distribution is approximated.
    EXACT = 10
    # Values that depend more than this on the one before cannot be distinguished from a random walk.
    MOST_DEPENDENT = 0.98
    private_constant :EXACT, :MOST_DEPENDENT

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

    # How certain it is that the values rise, one-sided. Two tests are made, and the more certain result is used, with
    # Bonferroni's correction for two tests:
    #
    # - Is the level higher later than earlier? This is Mann and Kendall's test. Levels of memory depend on the levels
    #   before, so their order is weaker evidence than it seems. Yue and Wang's correction (2004) computes the number of
    #   independent values that they are worth, and Student's distribution accounts for that small number.
    # - Does each step add, as a leak does? This is Student's test of the steps. The level of a random walk is no
    #   evidence for it, and values that return to where they began have steps whose sum is 0.
    #
    # For up to ten values, the exact probabilities of Mann and Kendall's test are used, as if the values were
    # independent: so few values do not show how much they depend on each other.
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

      deviation = (score <=> 0) * [score.abs - 1, 0].max / Math.sqrt(variance)
      return normal(deviation) if size <= EXACT

      1.0 - [2 * (1.0 - [level(values, deviation), steps(values)].max), 1.0].min
    end

    # @return [Float]
    def self.median(values)
      sorted = values.sort
      middle = sorted.size / 2
      (sorted.size.odd? ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2.0).to_f
    end

    # @param values [Array<Numeric>] two or more
    # @return [Array(Float, Float)] their mean, and its standard error
    def self.mean_and_error(values)
      mean = values.sum.fdiv(values.size)
      [mean, Math.sqrt(values.sum { |value| (value - mean)**2 } / (values.size - 1) / values.size)]
    end

    def self.pairs(size)
      (0...size).to_a.combination(2)
    end
    private_class_method :pairs

    def self.terms(count)
      count * (count - 1) * ((2 * count) + 5) / 18.0
    end
    private_class_method :terms

    # How many of all orders of this many different values have a lower score.
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

    # @param deviation [Float] of Mann and Kendall's score, if the values were independent
    def self.level(values, deviation)
      correction = correction(values.size, dependence(values))
      independent = values.size / correction
      independent > 2.5 ? student(deviation / Math.sqrt(correction), independent - 2) : 0.5
    end
    private_class_method :level

    def self.steps(values)
      steps = values.each_cons(2).map { |before, after| after - before }
      mean, error = mean_and_error(steps)
      return mean.positive? ? 1.0 : 0.0 if error <= mean.abs * 1e-9

      student(mean / error, steps.size - 1)
    end
    private_class_method :steps

    # The factor by which the variance of a sum of this many values grows because each depends on the one before.
    # Never below 1, so that the correction never makes the result more certain.
    def self.correction(size, dependence)
      1 + (2 * (1...size).sum { |lag| (1 - lag.fdiv(size)) * (dependence**lag) })
    end
    private_class_method :correction

    # The autocorrelation of the ranks of the values without their slope. A small number of values makes it seem
    # smaller than it is, and so does subtracting the slope. Both are corrected.
    def self.dependence(values)
      size = values.size
      span = values.max - values.min
      slope = slope((0...size).to_a, values)
      # The last digits are removed, because they would be noise that depends on itself.
      rest = values.each_with_index.map { |value, i| ((value - (slope * i)) / span).round(9) }
      found = autocorrelation(ranks(rest))
      ((found + (2.0 / size)) / (1 - (4.0 / size))).clamp(0, MOST_DEPENDENT)
    end
    private_class_method :dependence

    # Equal values share the mean of their ranks.
    def self.ranks(values)
      rank = 0
      means = values.tally.sort.to_h do |value, count|
        rank += count
        [value, rank - ((count - 1) / 2.0)]
      end
      values.map { |value| means[value] }
    end
    private_class_method :ranks

    def self.autocorrelation(values)
      mean = values.sum.fdiv(values.size)
      whole = values.sum { |value| (value - mean)**2 }
      whole.zero? ? 0.0 : values.each_cons(2).sum { |one, other| (one - mean) * (other - mean) } / whole
    end
    private_class_method :autocorrelation

    # Student's distribution, by Wallace's formula (1959), whose error is below 0.001 here.
    def self.student(deviation, freedom)
      factor = ((8 * freedom) + 1) / ((8.0 * freedom) + 3)
      normal((deviation <=> 0) * factor * Math.sqrt(freedom * Math.log(1 + (deviation**2 / freedom.to_f))))
    end
    private_class_method :student
  end
end
