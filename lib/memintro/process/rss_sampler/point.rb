# frozen_string_literal: true

require_relative "ring"
require_relative "sample"
require_relative "spread"
require_relative "../../support/untracked_text"

module Memintro
  class RSSSampler
    # One sample, or several consecutive ones, as the ring keeps them. Frozen.
    class Point
      prepend UntrackedText

      # @return [Float] seconds since the epoch of the first sample
      attr_reader :first
      # @return [Float] seconds since the epoch of the last sample
      attr_reader :last
      # @return [Integer] samples it is made of
      attr_reader :count
      # @return [Integer, nil] the greatest standard error of the samples' `malloc_live_bytes`; nil where all are exact
      attr_reader :malloc_live_bytes_standard_error

      # @api private
      def initialize(row)
        first, last, @first, @last = row
        @count = last - first + 1
        @spreads = Sample::FIGURES.each_with_index.to_h do |name, index|
          samples, min, sum, max = row[Ring::HEAD + (index * Ring::WIDTH), Ring::WIDTH]
          [name, samples.zero? ? nil : Spread.new(min, sum.fdiv(samples), max)]
        end.freeze
        @malloc_live_bytes_standard_error = row[Ring::HEAD + (Sample::FIGURES.size * Ring::WIDTH)]
        freeze
      end

      # @return [Boolean] whether `malloc_live_bytes` is estimated from a sample
      def estimated?
        !@malloc_live_bytes_standard_error.nil?
      end

      # @param name [Symbol] one of {Sample::FIGURES}
      # @return [Spread, nil] nil where no sample has the figure
      # @raise [ArgumentError] if there is no such figure
      def [](name)
        @spreads.fetch(name) do
          raise ArgumentError, "there is no figure #{name.inspect}; there are #{Sample::FIGURES.join(', ')}"
        end
      end

      # @return [Hash{Symbol => Object}] first, last, count, and min, mean and max of each figure that is known; of an
      #   estimate also `estimated: true` and the standard error
      def to_h
        figures = { first: @first, last: @last, count: @count, **@spreads.transform_values { |spread| spread&.to_h } }
        return figures unless estimated?

        figures.merge(estimated: true, malloc_live_bytes_standard_error: @malloc_live_bytes_standard_error)
      end

      # @return [String] one short line
      def inspect
        rss = self[:rss]
        "#<#{self.class} #{Time.at(@first).strftime('%H:%M:%S')} #{Units.counted(@count, 'sample')}, " \
          "rss #{Units.bytes(rss.min)} to #{Units.bytes(rss.max)}#{malloc}>"
      end
      alias to_s inspect

      private

      def malloc
        live = self[:malloc_live_bytes] or return
        least, most = [live.min, live.max].map { |count| "#{'~' if estimated?}#{Units.bytes(count)}" }
        error = " ±#{Units.bytes(@malloc_live_bytes_standard_error)}" if estimated?
        ", malloc live #{least} to #{most}#{error}"
      end
    end
  end
end
