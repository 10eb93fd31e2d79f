# frozen_string_literal: true

require_relative "../support/units"
require_relative "../support/value_object"

module Memintro
  # Figures of one instruction sequence; they do not keep the sequence alive. Frozen.
  class Iseq
    include ValueObject

    # Names of the figures, in the order of {#to_h}.
    ATTRIBUTES = %i[path lineno label bytes].freeze

    # @return [String] the file it was compiled from, or the file argument of `eval`; `"(unknown)"` while it is being
    #   compiled
    attr_reader :path
    # @return [Integer] its first line; 0 if there is none, and below 0 if `eval` got such a number
    attr_reader :lineno
    # @return [String] such as `"initialize"`, `"block in each"`, `"<class:User>"`
    attr_reader :label
    # @return [Integer] bytes of its slot and of what it owns outside
    attr_reader :bytes

    # @api private
    def initialize(path, lineno, label, bytes)
      @path = path
      @lineno = lineno
      @label = label
      @bytes = bytes
      freeze
    end

    # @return [String] `path:lineno`
    def location
      "#{path}:#{lineno}"
    end

    # @return [String] one short line
    def inspect
      "#<#{self.class} #{location} #{label}: #{Units.bytes(bytes)}>"
    end
    alias to_s inspect
  end

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
