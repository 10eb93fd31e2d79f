# frozen_string_literal: true

require_relative "units"
require_relative "untracked_text"

module Memintro
  # What figures have in common that a sample may have given (`mode: :sampled`). Exact figures answer as well: their
  # standard errors are 0.0. A class that includes this lists the figures that have one in `ESTIMATES`, and answers
  # `variance_of` for each.
  #
  # The estimates are unbiased. The truth lies within 1.96 standard errors of the figure in 95 of 100 cases, as long as
  # some ten blocks or more were sampled.
  #
  # @example
  #   site = Memintro.top.first
  #   site.estimated?                   # => true
  #   site.live_bytes                   # => 51_380_224
  #   site.live_bytes_standard_error    # => 5190137.2
  module Estimates
    # Adds `…_standard_error` for each of the figures.
    # @api private
    def self.included(base)
      base::ESTIMATES.each do |name|
        base.define_method(:"#{name}_standard_error") { standard_error(name) }
      end
    end

    # @api private
    # @param sample_bytes [Integer, nil] mean distance of the samples
    # @return [String] what a reader of estimates must know
    def self.caution(sample_bytes = nil)
      "Figures with ~ are estimated from a sample#{", one byte in #{Units.count(sample_bytes)}" if sample_bytes}. " \
        "After ± stands the standard error; the truth is within two of them in 95 of 100 cases."
    end

    # @return [Boolean] whether the figures, or some of them, are estimated from a sample
    def estimated?
      !@variances.nil?
    end

    # @param name [Symbol] one of the class's `ESTIMATES`
    # @return [Float] the standard error of that figure, in the figure's own unit; 0.0 where it is exact
    # @raise [ArgumentError] if there is no such figure
    def standard_error(name)
      unless self.class::ESTIMATES.include?(name)
        raise ArgumentError, "there is no standard error of #{name.inspect}; there is one of " \
                             "#{self.class::ESTIMATES.join(', ')}"
      end

      Math.sqrt(variance(name))
    end

    # @api private
    # @param name [Symbol] one of the class's `ESTIMATES`
    # @return [Float] the square of the standard error; variances can be added up
    def variance(name)
      # What is left of two large numbers may lie a little below zero.
      estimated? ? [variance_of(name), 0.0].max : 0.0
    end

    # @return [Hash{Symbol => Object}] every attribute, in a fixed order; of estimates also `estimated: true` and the
    #   standard errors
    def to_h
      return super unless estimated?

      UntrackedText.made { super.merge(estimated: true, **standard_errors) }
    end

    # @param name [Symbol, String] an attribute, `:estimated` or `:…_standard_error`
    # @return [Object] its value
    # @raise [ArgumentError] if there is no such attribute
    def [](name)
      text = name.respond_to?(:to_sym) ? name.to_s : ""
      return estimated? if text == "estimated"

      figure = text.delete_suffix("_standard_error").to_sym
      return standard_error(figure) if text.end_with?("_standard_error") && self.class::ESTIMATES.include?(figure)

      super
    end

    # @api private
    # @return [Hash{Symbol => Float}]
    def standard_errors
      self.class::ESTIMATES.to_h { |name| [:"#{name}_standard_error", standard_error(name)] }
    end

    # @api private
    # @return [String] the figure for people; with its standard error, if it is an estimate
    def shown(name, &format)
      Units.uncertain(public_send(name), estimated? ? standard_error(name) : nil, &format)
    end

    # @api private
    # @param noun [String] what is counted, in the singular
    # @return [String] as {#shown}, such as `"1 block"`, `"~48 ±7 blocks"`
    def counted(name, noun, &format)
      "#{shown(name, &format)} #{Units.noun(public_send(name), noun)}"
    end
  end
end
