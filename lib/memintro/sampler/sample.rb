# frozen_string_literal: true

require_relative "../value_object"
require_relative "../units"

module Memintro
  class Sampler
    # One look at the process. Frozen.
    class Sample
      include ValueObject

      # What is looked at.
      FIGURES = %i[rss pss live_objects malloc_live_bytes gc_time_ns].freeze
      # Names of all values, in the order of {#to_h}.
      ATTRIBUTES = [:time, *FIGURES].freeze

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
      def initialize(time, *figures)
        @time = time
        @rss, @pss, @live_objects, @malloc_live_bytes, @gc_time_ns = figures
        freeze
      end

      # @return [String] one short line
      def inspect
        "#<#{self.class} #{Time.at(@time).strftime('%H:%M:%S')} rss #{Units.bytes(@rss)}, " \
          "#{Units.count(@live_objects)} live objects>"
      end
      alias to_s inspect
    end
  end
end
