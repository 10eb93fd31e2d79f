# frozen_string_literal: true

require_relative "../../support/units"
require_relative "../../support/value_object"

module Memintro
  class Occupancy
    # Objects of one class on sparse pages. Frozen.
    class Holder
      include ValueObject

      # Names of the figures, in the order of {#to_h}.
      ATTRIBUTES = %i[name count pages].freeze

      # @return [String] as {HistogramRow#name}
      attr_reader :name
      # @return [Integer] its objects on sparse pages
      attr_reader :count
      # @return [Integer] sparse pages that have one of them; a page can be held by several classes
      attr_reader :pages

      # @api private
      def initialize(name, count, pages)
        @name = name
        @count = count
        @pages = pages
        freeze
      end

      # @return [String] one short line
      def inspect
        "#<#{self.class} #{name}: #{Units.count(count)} on #{Units.counted(pages, 'page')}>"
      end
      alias to_s inspect
    end
  end
end
