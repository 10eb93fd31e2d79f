# frozen_string_literal: true

require_relative "row"

module Memintro
  # The VM's own objects of one kind, by {Memintro.internals}. Frozen. The name is a key of
  # `ObjectSpace.count_imemo_objects`, such as `"imemo_iseq"`.
  class InternalRow < HeapRow
  end
end
