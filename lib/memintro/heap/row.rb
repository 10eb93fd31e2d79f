# frozen_string_literal: true

require_relative "../support/units"
require_relative "../support/value_object"

module Memintro
  # Objects of Ruby's heap that have a name in common: how many, and how large. Frozen.
  class HeapRow
    include ValueObject

    # Names of the figures, in the order of {#to_h}.
    ATTRIBUTES = %i[name count bytes].freeze

    # @return [String] what they have in common
    attr_reader :name
    # @return [Integer] number of objects
    attr_reader :count
    # @return [Integer] bytes of their slots and of what they own outside, as `ObjectSpace.memsize_of` counts them
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
      "#<#{self.class} #{name}: #{Units.count(count)}, #{Units.bytes(bytes)}>"
    end
    alias to_s inspect
  end
end
