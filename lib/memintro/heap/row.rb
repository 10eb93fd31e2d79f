# frozen_string_literal: true

require_relative "../support/names"
require_relative "../support/units"
require_relative "../support/value_object"

module Memintro
  # Objects of Ruby's heap with one name: how many, and how large. Frozen.
  class HeapRow
    include ValueObject

    # Names of the figures, in the order of {#to_h}.
    ATTRIBUTES = %i[name count bytes].freeze

    # @return [String] their common name
    attr_reader :name
    # @return [Integer] number of objects
    attr_reader :count
    # @return [Integer, nil] bytes of their slots and of what they own outside, as `ObjectSpace.memsize_of` counts
    #   them; nil if only their number is known, as in {Snapshot#types}
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
      "#<#{self.class} #{Names.printable(name)}: #{Units.count(count)}#{", #{Units.bytes(bytes)}" if bytes}>"
    end
    alias to_s inspect
  end

  # All objects of one class, by {Memintro.histogram}. Frozen.
  #
  # The name is the class's own, even if the class defines a method `name`. Objects with a singleton class count for
  # their class. Names in parentheses, and names that begin with `imemo_`, are not classes: `(anonymous class <
  # Struct)`, `(singleton class)`, `(included module)`, `(hidden T_ARRAY)`.
  class HistogramRow < HeapRow
    # @api private
    def initialize(name, count, bytes, internal)
      @internal = internal
      super(name, count, bytes)
    end

    # @return [Boolean] whether Ruby hides these objects, from `ObjectSpace.each_object` too
    def internal?
      @internal
    end
  end

  # The VM's own objects of one kind, by {Memintro.internals}. Frozen. The name is a key of
  # `ObjectSpace.count_imemo_objects`, such as `"imemo_iseq"`.
  class InternalRow < HeapRow
  end

  # Instruction sequences with the same path, location or label, by {Memintro.top_iseqs}. Frozen.
  class IseqGroup < HeapRow
  end
end
