# frozen_string_literal: true

require_relative "../../support/estimates"
require_relative "../../support/names"
require_relative "../../support/units"
require_relative "../../support/value_object"
require_relative "../../support/statistics"

module Memintro
  class Trend
    # The values of one figure in all snapshots, and how it grows. Frozen.
    #
    # In a sampled process the live bytes of a call site are estimates, and the first and last value have standard
    # errors. The error of the growth is an upper bound, because blocks that are live at both ends are in both
    # estimates. The slope has no error; {#confidence} says how certain its growth is.
    class Series
      # Names of the attributes, in the order of {#to_h}.
      ATTRIBUTES = %i[section name unit first last growth slope_per_minute confidence every_step].freeze
      # The figures that have a standard error: `last_standard_error` and so on.
      ESTIMATES = %i[first last growth].freeze

      include ValueObject
      include Estimates

      # @return [Symbol] its list, as in {Diff#sections}
      attr_reader :section
      # @return [String] of the class, file, counter …
      attr_reader :name
      # @return [Symbol] `:bytes`, `:ms` or `:count`
      attr_reader :unit
      # @return [Numeric]
      attr_reader :first
      # @return [Numeric]
      attr_reader :last
      # @return [Float] by Theil and Sen; in {#unit}s a minute
      attr_reader :slope_per_minute
      # @return [Float] by Mann and Kendall or by Student, from 0 to 1: 0.99 is the confidence with which one series out
      #   of a hundred that do not grow would be taken for one that does
      attr_reader :confidence
      # @return [Boolean] whether it was greater in each snapshot than in the one before
      attr_reader :every_step
      # @return [Array<Numeric>] of each snapshot, 0 where one does not have it; not in {#to_h}
      attr_reader :values

      # @api private
      # @param variances [Array(Float, Float), nil] of the first and the last value; nil: they are exact
      def initialize(section, name, unit, minutes, values, variances = nil)
        @section = section
        @name = name
        @unit = unit
        @values = values.freeze
        @first = values.first
        @last = values.last
        @slope_per_minute = Statistics.slope(minutes, values)
        @confidence = Statistics.confidence(values)
        @every_step = values.each_cons(2).all? { |before, after| after > before }
        @variances = variances && [*variances, variances.sum].freeze
        freeze
      end

      # @return [Numeric]
      def growth
        last - first
      end

      # @return [String] growth in a minute, as text
      def slope_text
        "#{'~' if estimated?}#{Units.signed(slope_per_minute.round, unit)}"
      end

      # @return [Array<String>] {#first} and {#last}, to be read; estimates with their standard errors
      def ends
        %i[first last].map { |name| shown(name) { |number| Units.plain(number, unit) } }
      end

      # @api private
      # @return [Array] arguments of Memintro::Native.trend
      def row
        is_path = %i[call_sites object_sites iseqs].include?(section)
        [Diff::Sections::LAST.fetch(section, "GC"), name, is_path, unit, values, slope_per_minute.to_f, confidence.to_f,
         every_step, @variances&.first(2)]
      end

      # @return [String] one short line
      def inspect
        shown = Names.printable(name)
        shown = "...#{shown[-77..]}" if shown.size > 80
        "#<#{self.class} #{section} #{shown} #{slope_text} a minute, " \
          "#{format('%.1f', confidence * 100)}% sure#{', in every step' if every_step}>"
      end
      alias to_s inspect

      private

      def estimate_of(name) = Native.estimate(public_send(name), @variances[ESTIMATES.index(name)], 0.0, false)
    end
  end
end
