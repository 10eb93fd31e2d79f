# frozen_string_literal: true

# What rows of call sites and totals hold of the errors of their estimates: a variance and a skew of each figure.
module Doubts
  module_function

  # variances, skews: of allocations, frees, total and freed bytes. growth, ages: variances. covariance: of the sum of
  # ages with frees.
  def of_row(variances, skews = [0.0] * 4, growth: 0.0, ages: 0.0, covariance: 0.0)
    [*variances.zip(skews).flatten, ages, 0.0, 0.0, 0.0, growth, 0.0, covariance]
  end

  # variances, skews: of allocated and freed bytes, allocations, frees.
  def of_totals(variances, skews = [0.0] * 4) = variances.zip(skews).flatten
end
