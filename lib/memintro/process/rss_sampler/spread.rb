# frozen_string_literal: true

require_relative "../../support/value_object"

module Memintro
  class RSSSampler
    # One figure over one or more samples. Frozen.
    class Spread
      include ValueObject

      # Names of the values, in the order of {#to_h}.
      ATTRIBUTES = %i[min mean max].freeze

      # @return [Integer]
      attr_reader :min
      # @return [Float]
      attr_reader :mean
      # @return [Integer]
      attr_reader :max

      # @api private
      def initialize(min, mean, max)
        @min = min
        @mean = mean
        @max = max
        freeze
      end

      # @return [String] one short line
      def inspect
        "#<#{self.class} #{min} to #{max}, mean #{mean.round(1)}>"
      end
      alias to_s inspect
    end
  end
end
