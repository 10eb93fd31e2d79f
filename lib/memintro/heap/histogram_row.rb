# frozen_string_literal: true

require_relative "row"

module Memintro
  # All objects of one class, by {Memintro.histogram}. Frozen.
  #
  # The name is the class's own, whatever its `name` method says. Objects with a singleton class count with the class
  # below it. Names in parentheses, and those that begin with `imemo_`, are no classes: `(anonymous class < Struct)`,
  # `(singleton class)`, `(included module)`, `(hidden T_ARRAY)`.
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
end
