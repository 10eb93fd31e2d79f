# frozen_string_literal: true

require_relative "row"

module Memintro
  # Instruction sequences with the same path, location or label, by {Memintro.top_iseqs}. Frozen.
  class IseqGroup < HeapRow
  end
end
