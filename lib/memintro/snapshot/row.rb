# frozen_string_literal: true

require_relative "../support/units"
require_relative "../support/value_object"

module Memintro
  class Snapshot
    # One line of a snapshot's list: a class, a kind of object, a place that instruction sequences come from. Frozen.
    class Row
      include ValueObject

      # Names of the attributes, in the order of {#to_h}.
      ATTRIBUTES = %i[name count bytes].freeze

      # @return [String] UTF-8, or binary if the name is not valid in it
      attr_reader :name
      # @return [Integer] how many there are
      attr_reader :count
      # @return [Integer, nil] bytes of all of them; nil where only their number is known
      attr_reader :bytes

      # @api private
      def initialize(name, count, bytes)
        @name = name
        @count = count
        @bytes = bytes
        freeze
      end

      # @return [String] one short line
      def inspect
        "#<#{self.class} #{Report::Names.printable(name)[0, 80]} #{Units.bytes(bytes) if bytes} in #{count}>"
      end
      alias to_s inspect
    end
  end
end
