# frozen_string_literal: true

require_relative "../../support/estimates"
require_relative "../../support/names"
require_relative "../../support/units"
require_relative "../../support/value_object"

module Memintro
  class Diff
    # A figure that changed. Frozen.
    #
    # Malloc figures of a sampled process are estimates, and have standard errors: `growth_standard_error` and so on.
    # For allocations and frees between two snapshots of one process, these are the errors of the samples drawn in
    # between. Blocks that are live at both moments are in both estimates and cancel out, but how many they are is not
    # known. So the error of the growth of live figures is at most the one given here, which is the smaller of two upper
    # bounds: the root of the sum of the squares of both errors, and the error of all allocations and frees in between.
    # With {#at_least}, it includes only the error of the side that is known.
    class Change
      # Names of the attributes, in the order of {#to_h}.
      ATTRIBUTES = %i[name unit before after growth count_before count_after count_growth at_least].freeze
      # The figures that have a standard error: `growth_standard_error` and so on.
      ESTIMATES = %i[before after growth count_before count_after count_growth].freeze

      include ValueObject
      include Estimates

      # @return [String] of the class, file, counter …
      attr_reader :name
      # @return [Symbol] unit of {#before}, {#after} and {#growth}: `:bytes`, `:ms` or `:count`
      attr_reader :unit
      # @return [Numeric]
      attr_reader :before
      # @return [Numeric]
      attr_reader :after
      # @return [Integer, nil] how many there were, where {#before} is in bytes
      attr_reader :count_before
      # @return [Integer, nil]
      attr_reader :count_after
      # @return [Boolean] whether it changed by at least this much: a list that was cut does not say how much more
      attr_reader :at_least

      # @api private
      # @param name [String] of the sum
      # @param changes [Array<Change>] in bytes; estimates whose samples were drawn independently
      # @return [Change] their sum, without a count where that of one of them is not known
      def self.sum(name, changes)
        total = ->(figure) { changes.sum(&figure) }
        counts = changes.all?(&:count_after) ? %i[count_before count_after].to_h { |count| [count, total[count]] } : {}
        variances = (ESTIMATES.to_h { |figure| [figure, changes.sum { |change| change.variance(figure) }] } if
          changes.any?(&:estimated?))
        new(name, :bytes, total[:before], total[:after], **counts, at_least: changes.any?(&:at_least),
                                                                   variances: variances)
      end

      # @api private
      # @param variances [Hash{Symbol => Float}, nil] of {ESTIMATES}; nil: all is exact
      # @param per_sample [Hash{Symbol => Float}] how much of each one sampled block stands for
      def initialize(name, unit, before, after, count_before: nil, count_after: nil, at_least: false, variances: nil,
                     per_sample: {})
        @name = name
        @unit = unit
        @before = before
        @after = after
        @count_before = count_before
        @count_after = count_after
        @at_least = at_least
        @variances = variances
        @per_sample = per_sample
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

      # @return [String] the growth, to be read; an estimate with its standard error
      def growth_text
        "#{'at least ' if at_least}#{Units.uncertain_growth(growth, error_of(:growth), unit)}"
      end

      # @return [String, nil] the growth of the count, to be read
      def count_growth_text
        Units.uncertain_growth(count_growth, error_of(:count_growth), :count) if count_growth
      end

      # @return [String] the earlier value as text
      def before_text
        shown(:before) { |number| Units.plain(number, unit) }
      end

      # @return [String] the later value as text
      def after_text
        shown(:after) { |number| Units.plain(number, unit) }
      end

      # @return [String, nil] how many there are, to be read
      def count_after_text
        shown(:count_after) { |number| Units.count(number) } if count_after
      end

      # @api private
      # @return [Array] arguments of Memintro::Native.diff
      def row
        doubts = @variances && [@variances, @per_sample].map { |all| ESTIMATES.map { |figure| all.fetch(figure, 0.0) } }
        [name, unit, before, after, count_before, count_after, at_least, doubts]
      end

      # @api private
      # @return [Hash{Symbol => Float}] of the figures that there are
      def standard_errors
        super.select { |name, _| public_send(name.to_s.delete_suffix("_standard_error")) }
      end

      # @api private
      # @return [Hash{Symbol => Object}] of the figures that there are
      def doubts
        super.select { |name, _| public_send(name.to_s.delete_suffix("_interval")) }
      end

      # @return [String] one short line
      def inspect
        shown = Names.printable(name)
        shown = "...#{shown[-77..]}" if shown.size > 80
        "#<#{self.class} #{shown} #{growth_text}#{", #{count_growth_text} of them" if count_growth}>"
      end
      alias to_s inspect

      private

      def error_of(name)
        standard_error(name) if estimated?
      end

      def estimate_of(name)
        Native.estimate(public_send(name), @variances.fetch(name, 0.0), @per_sample.fetch(name, 0.0), signed?(name))
      end

      def signed?(name)
        %i[growth count_growth].include?(name)
      end
    end
  end
end
