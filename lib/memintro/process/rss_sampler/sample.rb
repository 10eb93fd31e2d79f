# frozen_string_literal: true

require_relative "../../support/estimates"
require_relative "../../support/units"
require_relative "../../support/value_object"

module Memintro
  class RSSSampler
    # A sample of the process. Frozen. In sampled mode malloc's live bytes are an estimate, with
    # `malloc_live_bytes_standard_error`.
    class Sample
      # The figures of a sample.
      FIGURES = %i[rss pss live_objects malloc_live_bytes gc_time_ns].freeze
      # Names of all values, in the order of {#to_h}.
      ATTRIBUTES = [:time, *FIGURES].freeze
      # The figure that has a standard error.
      ESTIMATES = %i[malloc_live_bytes].freeze

      include ValueObject
      include Estimates

      # @return [Float] seconds since the epoch
      attr_reader :time
      # @return [Integer] bytes
      attr_reader :rss
      # @return [Integer, nil] bytes; nil where it was not asked for
      attr_reader :pss
      # @return [Integer] slots of Ruby's heap that hold an object, or one that was not swept away yet
      attr_reader :live_objects
      # @return [Integer, nil] bytes; nil while nothing is tracked
      attr_reader :malloc_live_bytes
      # @return [Integer] in the collector since the process started
      attr_reader :gc_time_ns

      # @api private
      # @param error [Float, nil] standard error of malloc's live bytes; nil: they are exact
      def initialize(time, *figures, error: nil)
        @time = time
        @rss, @pss, @live_objects, @malloc_live_bytes, @gc_time_ns = figures
        @variances = error && [error**2].freeze
        freeze
      end

      # @return [String] one short line
      def inspect
        "#<#{self.class} #{Time.at(@time).strftime('%H:%M:%S')} rss #{Units.bytes(@rss)}, " \
          "#{Units.counted(@live_objects, 'live object')}#{malloc}>"
      end
      alias to_s inspect

      private

      def malloc
        ", malloc live #{shown(:malloc_live_bytes) { |count| Units.bytes(count) }}" if @malloc_live_bytes
      end

      def estimate_of(_name) = Native.estimate(@malloc_live_bytes, @variances.first, 0.0, false)
    end
  end
end
