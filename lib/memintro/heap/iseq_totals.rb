# frozen_string_literal: true

require_relative "../support/units"
require_relative "../support/value_object"

module Memintro
  # All instruction sequences: the compiled code of every method, block, class body and file. Frozen.
  class IseqTotals
    include ValueObject

    # Names of the figures, in the order of {#to_h}.
    ATTRIBUTES = %i[count bytes].freeze

    # @return [Integer] how many there are
    attr_reader :count
    # @return [Integer] bytes of their slots and of what they own outside
    attr_reader :bytes

    # @api private
    def initialize(count, bytes)
      @count = count
      @bytes = bytes
      freeze
    end

    # @return [String] one short line
    def inspect
      "#<#{self.class} #{Units.counted(count, 'iseq')}, #{Units.bytes(bytes)}>"
    end
    alias to_s inspect
  end
end
