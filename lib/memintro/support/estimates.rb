# frozen_string_literal: true

require_relative "units"
require_relative "untracked_text"

module Memintro
  # The methods of figures that may be estimated from a sample (`mode: :sampled`). Exact figures have them as well,
  # with standard errors of 0.0. A class that includes this lists the figures with a standard error in `ESTIMATES`,
  # defines `variance_of` for each and, if known, `skew_of` and `others_per_sample`.
  #
  # The estimates are unbiased. In 93 to 97 of 100 cases the truth is in the {#interval}, which is about two standard
  # errors to each side if many blocks were sampled. If few were sampled, it is longer upwards than downwards: without
  # any sample it ends at nearly five times what one sample stands for.
  #
  # If the blocks of a site differ much in size (by more than some sixteen times), its counts are less certain: small
  # blocks are many and seldom drawn. Its bytes are not affected.
  #
  # @example
  #   site = Memintro.top.first
  #   site.estimated?                   # => true
  #   site.live_bytes                   # => 51_380_224
  #   site.live_bytes_standard_error    # => 5190137.2
  #   site.interval(:live_bytes)        # => [42_017_231, 63_142_912]
  module Estimates
    # A variance that is this much smaller than the two variances it is the difference of is only their rounding
    # error.
    ROUNDING = 1e-9
    # Rare blocks that stand for much are usually missing from a sample, so one draw counts for this much more.
    UNSEEN = 1.2
    private_constant :ROUNDING, :UNSEEN

    # Adds `…_standard_error` for each of the figures.
    # @api private
    def self.included(base)
      base::ESTIMATES.each do |name|
        base.define_method(:"#{name}_standard_error") { standard_error(name) }
      end
    end

    # @api private
    # @param allocated [Float] variance or skew of what came
    # @param freed [Float] the same of what went
    # @return [Float] of what is live
    def self.left(allocated, freed)
      left = allocated - freed
      left < ROUNDING * allocated ? 0.0 : left
    end

    # Not `**`: that is the C library's `pow`, whose tables take 0.2 MB that few programs have in memory.
    # @api private
    # @param number [Float]
    # @return [Float]
    def self.square(number) = number * number

    # @return [Boolean] whether the figures, or some of them, are estimated from a sample
    def estimated?
      !@variances.nil?
    end

    # @param name [Symbol] one of the class's `ESTIMATES`
    # @return [Float] the standard error of that figure, in the figure's own unit; 0.0 where it is exact. As if one
    #   block more had been sampled than was: the spread of few samples says too little.
    # @raise [ArgumentError] if there is no such figure
    def standard_error(name)
      known!(name)
      estimated? ? Math.sqrt(variance(name) + Estimates.square(per_sample(name))) : 0.0
    end

    # @param name [Symbol] one of the class's `ESTIMATES`
    # @return [Array(Numeric, Numeric)] the least and the most that the truth is likely to be: it lies between them in
    #   93 to 97 of 100 cases, however few blocks were sampled. Of exact figures both are the figure.
    # @raise [ArgumentError] if there is no such figure
    # @example
    #   site.live_bytes               # => 524_288
    #   site.interval(:live_bytes)    # => [89_966, 3_420_404]
    def interval(name)
      known!(name)
      value = public_send(name)
      return [value, value] unless estimated? && value

      low, high = signed?(name) ? even_bounds(name, value) : bounds(name, value)
      value.is_a?(Float) ? [low, high] : [low.floor, high.ceil]
    end

    # @api private
    # @param name [Symbol] one of the class's `ESTIMATES`
    # @return [Float] the square of the standard error; variances can be added up
    def variance(name)
      # The difference of two large numbers may be slightly below zero.
      estimated? ? [variance_of(name), 0.0].max : 0.0
    end

    # @api private
    # @param name [Symbol] one of the class's `ESTIMATES`
    # @return [Float] covariance of the figure with its own estimated variance; can be added up as well
    def skew(name)
      estimated? ? [skew_of(name), 0.0].max : 0.0
    end

    # @api private
    # @param name [Symbol] one of the class's `ESTIMATES`
    # @return [Float] how much of the figure one sampled block stands for, or what others of the same origin do
    def per_sample(name)
      [own_per_sample(name), others_per_sample(name)].max
    end

    # @return [Hash{Symbol => Object}] every attribute, in a fixed order; of estimates also `estimated: true`, the
    #   standard errors and the intervals
    def to_h
      return super unless estimated?

      UntrackedText.made { super.merge(estimated: true, **standard_errors, **doubts) }
    end

    # @param name [Symbol, String] an attribute, `:estimated` or `:…_standard_error`
    # @return [Object] its value
    # @raise [ArgumentError] if there is no such attribute
    def [](name)
      text = name.respond_to?(:to_sym) ? name.to_s : ""
      return estimated? if text == "estimated"

      figure, kind = text.match(/\A(.+)_(standard_error|interval)\z/)&.captures&.map(&:to_sym)
      return public_send(kind, figure) if kind && self.class::ESTIMATES.include?(figure)

      super
    end

    # @api private
    # @return [Hash{Symbol => Float}]
    def standard_errors
      erring.to_h { |name| [:"#{name}_standard_error", standard_error(name)] }
    end

    # @api private
    # @return [Hash{Symbol => Object}] the intervals, and what one sample stands for of what is summed up: with the
    #   standard error it gives the variance back to whoever reads the figures
    def doubts
      intervals = told.to_h { |name| [:"#{name}_interval", interval(name)] }
      intervals.merge(summed.to_h { |name| [:"#{name}_per_sample", own_per_sample(name)] })
    end

    # @api private
    # @return [String] the figure for people; with its standard error or interval, if it is an estimate
    def shown(name, &format)
      return yield(public_send(name)) if !estimated? || certain?(name)

      Units.uncertain(public_send(name), standard_error(name), interval(name), &format)
    end

    # @api private
    # @param noun [String] what is counted, in the singular
    # @return [String] as {#shown}, such as `"1 block"`, `"~48 ±7 blocks"`
    def counted(name, noun, &format)
      "#{shown(name, &format)} #{Units.noun(public_send(name), noun)}"
    end

    private

    def known!(name)
      return if self.class::ESTIMATES.include?(name)

      raise ArgumentError, "there is no standard error of #{name.inspect}; there is one of " \
                           "#{self.class::ESTIMATES.join(', ')}"
    end

    # Whether allocations and frees both add to the uncertainty, so that the error is symmetric.
    def signed?(_name) = false

    # Whether this figure is exact although others are estimates.
    def certain?(_name) = false

    # Figures whose standard errors are written into files.
    def erring = self.class::ESTIMATES

    def skew_of(_name) = 0.0

    def others_per_sample(_name) = 0.0

    # Figures whose interval is written into files.
    def told = erring

    # Figures that are summed over processes, with their variances and skews.
    def summed = []

    def own_per_sample(name)
      variance = variance(name)
      variance.positive? ? skew(name) / variance : 0.0
    end

    def even_bounds(name, value)
      reach = 2 * standard_error(name)
      [value - reach, value + reach]
    end

    # An estimate that is too low also has too low a spread: if the truth is above the figure, the figure was less
    # certain than it seems, by {#per_sample} for each step. The bounds are the truths that lie two of *their own*
    # errors away.
    def bounds(name, value)
      variance = variance(name)
      most = UNSEEN * per_sample(name)
      least = value.positive? ? [variance / value, most].min : 0.0
      [[value + (2 * least) - (2 * Math.sqrt(variance + Estimates.square(least))), 0.0].max,
       value + (2 * most) + (2 * Math.sqrt(variance + Estimates.square(most)))]
    end
  end
end
