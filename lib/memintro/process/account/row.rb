# frozen_string_literal: true

require_relative "../../support/units"
require_relative "../../support/value_object"

module Memintro
  class Account
    # What one kind of memory has of RSS. Frozen.
    class Row
      include ValueObject

      # Names of the figures, in the order of {#to_h}.
      ATTRIBUTES = %i[name bytes basis details].freeze

      # @return [Symbol] one of {Account::NAMES}
      attr_reader :name
      # @return [Integer] resident bytes; in a diff, the growth
      attr_reader :bytes
      # @return [Symbol] `:measured`, counted page by page; `:derived`, from sizes that others count, such as Ruby's of
      #   its objects; `:estimated`, where the kernel did not show which pages are resident
      attr_reader :basis
      # @return [Hash{Symbol => Object}] finer parts
      attr_reader :details

      # @api private
      def initialize(name, bytes, basis, details = {})
        @name = name
        @bytes = bytes
        @basis = basis
        @details = details.freeze
        freeze
      end

      # @return [String] one short line
      def inspect
        "#<#{self.class} #{name}: #{Units.bytes(bytes)}, #{basis}>"
      end
      alias to_s inspect
    end
  end
end
