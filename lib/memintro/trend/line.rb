# frozen_string_literal: true

require_relative "../report/names"
require_relative "../units"
require_relative "../value_object"

module Memintro
  class Trend
    # One figure over all snapshots. Frozen.
    class Line
      include ValueObject

      # Names of the attributes, in the order of {#to_h}.
      ATTRIBUTES = %i[section name unit first last growth slope_per_minute confidence every_step].freeze

      # @return [Symbol] the list that it is from, as in {Diff#sections}
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
      def initialize(section, name, unit, minutes, values)
        @section = section
        @name = name
        @unit = unit
        @values = values.freeze
        @first = values.first
        @last = values.last
        @slope_per_minute = Statistics.slope(minutes, values)
        @confidence = Statistics.confidence(values)
        @every_step = values.each_cons(2).all? { |before, after| after > before }
        freeze
      end

      # @return [Numeric]
      def growth
        last - first
      end

      # @return [String] one short line
      def inspect
        shown = Report::Names.printable(name)
        shown = "...#{shown[-77..]}" if shown.size > 80
        "#<#{self.class} #{section} #{shown} #{Units.signed(slope_per_minute.round, unit)} a minute, " \
          "#{format('%.1f', confidence * 100)}% sure#{', in every step' if every_step}>"
      end
      alias to_s inspect
    end
  end
end
