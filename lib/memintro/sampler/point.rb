# frozen_string_literal: true

require_relative "ring"
require_relative "sample"
require_relative "spread"
require_relative "../untracked_text"

module Memintro
  class Sampler
    # One or more samples after one another, as the ring keeps them. Frozen.
    class Point
      prepend UntrackedText

      # @return [Float] seconds since the epoch of the first sample
      attr_reader :first
      # @return [Float] seconds since the epoch of the last sample
      attr_reader :last
      # @return [Integer] samples it is made of
      attr_reader :count

      # @api private
      def initialize(row)
        first, last, @first, @last = row
        @count = last - first + 1
        @spreads = Sample::FIGURES.each_with_index.to_h do |name, index|
          samples, min, sum, max = row[Ring::HEAD + (index * Ring::WIDTH), Ring::WIDTH]
          [name, samples.zero? ? nil : Spread.new(min, sum.fdiv(samples), max)]
        end.freeze
        freeze
      end

      # @param name [Symbol] one of {Sample::FIGURES}
      # @return [Spread, nil] nil where no sample has the figure
      # @raise [ArgumentError] if there is no such figure
      def [](name)
        @spreads.fetch(name) do
          raise ArgumentError, "there is no figure #{name.inspect}; there are #{Sample::FIGURES.join(', ')}"
        end
      end

      # @return [Hash{Symbol => Object}] first, last, count, and min, mean and max of each figure that is known
      def to_h
        { first: @first, last: @last, count: @count, **@spreads.transform_values { |spread| spread&.to_h } }
      end

      # @return [String] one short line
      def inspect
        rss = self[:rss]
        "#<#{self.class} #{Time.at(@first).strftime('%H:%M:%S')} #{@count} samples, rss #{Units.bytes(rss.min)} to " \
          "#{Units.bytes(rss.max)}>"
      end
      alias to_s inspect
    end
  end
end
