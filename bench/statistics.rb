# frozen_string_literal: true

module Bench
  # The few formulas, each on a non-empty array of positive numbers.
  module Statistics
    module_function

    def median(values)
      sorted = values.sort
      middle = sorted.size / 2
      sorted.size.odd? ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2.0
    end

    def geometric_mean(values)
      Math.exp(values.sum { |value| Math.log(value) } / values.size)
    end

    # Width of the middle half, as a share of the median.
    def spread(values)
      sorted = values.sort
      (sorted[(sorted.size - 1) * 3 / 4] - sorted[(sorted.size - 1) / 4]) / median(values)
    end
  end
end
