# frozen_string_literal: true

require_relative "units"
require_relative "untracked_text"

module Memintro
  # The methods of figures that may be estimated from a sample (`mode: :sampled`). Exact figures have them as well,
  # with standard errors of 0.0. A class that includes this lists the figures with a standard error in `ESTIMATES`, and
  # its `estimate_of` has the extension compute what is known of the error of each.
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
    # The error of a figure: how much of it one of its own sampled blocks stands for, and the same for the blocks that
    # it is a part of; the standard error; the least and the most that the truth is likely to be.
    # @api private
    Estimate = Struct.new(:variance, :own_per_sample, :per_sample, :standard_error, :interval)
    private_constant :Estimate

    # Adds `…_standard_error` for each of the figures.
    # @api private
    def self.included(base)
      base::ESTIMATES.each do |name|
        base.define_method(:"#{name}_standard_error") { standard_error(name) }
      end
    end

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
      estimate(name)&.standard_error || 0.0
    end

    # @param name [Symbol] one of the class's `ESTIMATES`
    # @return [Array(Numeric, Numeric)] the least and the most that the truth is likely to be: it lies between them in
    #   93 to 97 of 100 cases, for any number of sampled blocks. For an exact figure, both are the figure.
    # @raise [ArgumentError] if there is no such figure
    # @example
    #   site.live_bytes               # => 524_288
    #   site.interval(:live_bytes)    # => [89_966, 3_420_404]
    def interval(name)
      known!(name)
      value = public_send(name)
      found = estimate(name) or return [value, value]

      low, high = found.interval
      value.is_a?(Float) ? [low, high] : [low.floor, high.ceil]
    end

    # @api private
    # @param name [Symbol] one of the class's `ESTIMATES`
    # @return [Float] the square of the standard error; variances can be added up
    def variance(name) = estimate(name)&.variance || 0.0

    # @api private
    # @param name [Symbol] one of the class's `ESTIMATES`
    # @return [Float] how much of the figure one sampled block stands for, or what others of the same origin do
    def per_sample(name) = estimate(name)&.per_sample || 0.0

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
      figures_with_error.to_h { |name| [:"#{name}_standard_error", standard_error(name)] }
    end

    # @api private
    # @return [Hash{Symbol => Object}] the intervals, and what one sample stands for of what is summed up: with the
    #   standard error it gives the variance back to whoever reads the figures
    def doubts
      intervals = figures_with_interval.to_h { |name| [:"#{name}_interval", interval(name)] }
      intervals.merge(figures_per_sample.to_h { |name| [:"#{name}_per_sample", estimate(name).own_per_sample] })
    end

    # @api private
    # @return [String] the figure for people; with its standard error or interval, if it is an estimate
    def shown(name, &format)
      return yield(public_send(name)) if !estimated? || certain?(name)

      Units.uncertain(public_send(name), standard_error(name), interval(name), &format)
    end

    # @api private
    # @param noun [String] the counted thing, in the singular
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

    # @return [Estimate, nil] nil: the figure is exact, or there is none
    def estimate(name)
      found = estimated? && public_send(name) && estimate_of(name)
      found ? Estimate.new(*found) : nil
    end

    # Whether this figure is exact although others are estimates.
    def certain?(_name) = false

    # Figures whose standard errors are written into files.
    def figures_with_error = self.class::ESTIMATES

    # Figures whose interval is written into files.
    def figures_with_interval = figures_with_error

    # Figures that are summed over processes, with their variances and skews.
    def figures_per_sample = []
  end
end
