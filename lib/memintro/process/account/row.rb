# frozen_string_literal: true

require_relative "../../support/units"
require_relative "../../support/value_object"

module Memintro
  class Account
    # What one kind of memory has of RSS. Frozen.
    class Row
      include ValueObject

      # Names of the figures, in the order of {#to_h}.
      ATTRIBUTES = %i[name bytes shared_bytes private_bytes basis details].freeze

      # @return [Symbol] one of {Account::NAMES}
      attr_reader :name
      # @return [Integer] resident bytes; in a diff, the growth
      attr_reader :bytes
      # @return [Integer, nil] of {bytes}, those in pages that other processes have as well; nil where that is not known
      attr_reader :shared_bytes
      # @return [Symbol] `:measured`, counted page by page; `:derived`, from sizes that others count, such as Ruby's of
      #   its objects; `:estimated`, where the kernel did not show which pages are resident
      attr_reader :basis
      # @return [Hash{Symbol => Object}] finer parts
      attr_reader :details

      # @api private
      # @param hash [Hash{Symbol => Object}] {#to_h}, as the extension or JSON has it
      # @return [Row] without a name where there is no such row
      # @raise [ArgumentError, TypeError] if it is none
      def self.of_hash(hash)
        new(NAMES.find { |name| name.to_s == hash[:name].to_s }, Integer(hash[:bytes]), hash[:basis].to_s.to_sym,
            hash[:details] || {}, shared_bytes: hash[:shared_bytes] && Integer(hash[:shared_bytes]))
      end

      # @api private
      def initialize(name, bytes, basis, details = {}, shared_bytes: nil)
        @name = name
        @bytes = bytes
        @shared_bytes = shared_bytes
        @basis = basis
        @details = details.freeze
        freeze
      end

      # @return [Integer, nil] of {bytes}, those in pages that no other process has
      def private_bytes
        shared_bytes && (bytes - shared_bytes)
      end

      # @return [String] one short line
      def inspect
        "#<#{self.class} #{name}: #{Units.bytes(bytes)}, #{basis}>"
      end
      alias to_s inspect
    end
  end
end
