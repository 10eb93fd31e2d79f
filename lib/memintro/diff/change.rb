# frozen_string_literal: true

require_relative "../report/names"
require_relative "../units"
require_relative "../value_object"

module Memintro
  class Diff
    # One thing that there is more or less of than before. Frozen.
    class Change
      include ValueObject

      # Names of the attributes, in the order of {#to_h}.
      ATTRIBUTES = %i[name unit before after growth count_before count_after count_growth at_least].freeze

      # @return [String] of the class, file, counter …
      attr_reader :name
      # @return [Symbol] what {#before}, {#after} and {#growth} are in: `:bytes`, `:ms` or `:count`
      attr_reader :unit
      # @return [Numeric]
      attr_reader :before
      # @return [Numeric]
      attr_reader :after
      # @return [Integer, nil] how many there were, where {#before} is in bytes
      attr_reader :count_before
      # @return [Integer, nil]
      attr_reader :count_after
      # @return [Boolean] whether it changed by at least so much: a list that was cut short does not tell the rest
      attr_reader :at_least

      # @api private
      def initialize(name, unit, before, after, count_before: nil, count_after: nil, at_least: false)
        @name = name
        @unit = unit
        @before = before
        @after = after
        @count_before = count_before
        @count_after = count_after
        @at_least = at_least
        freeze
      end

      # @return [Numeric] negative where it shrank
      def growth
        after - before
      end

      # @return [Integer, nil]
      def count_growth
        count_after - count_before if count_after
      end

      # @return [Boolean] whether nothing changed
      def none?
        growth.zero? && (count_growth || 0).zero?
      end

      # @return [String] the growth, to be read
      def growth_text
        "#{'at least ' if at_least}#{Units.signed(growth, unit)}"
      end

      # @return [String] one short line
      def inspect
        shown = Report::Names.printable(name)
        shown = "...#{shown[-77..]}" if shown.size > 80
        "#<#{self.class} #{shown} #{growth_text}#{", #{Units.signed(count_growth, :count)} of them" if count_growth}>"
      end
      alias to_s inspect
    end
  end
end
