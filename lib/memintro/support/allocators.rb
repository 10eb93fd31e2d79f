# frozen_string_literal: true

# Made by `rake figures` from crates/abi/src/allocators.rs.
module Memintro
  # The allocators that memintro knows besides that of the C library.
  # @api private
  module Allocators
    # The beginning of the library's file name, and the rest of the names of files to preload.
    Allocator = Struct.new(:library, :endings)
    ALL = {
      jemalloc: Allocator.new("libjemalloc", %w[.so.2]),
      tcmalloc: Allocator.new("libtcmalloc", %w[_minimal.so.4]),
      mimalloc: Allocator.new("libmimalloc", %w[.so.3 .so.2])
    }.each_value(&:freeze).freeze
    # Their names, for sentences.
    NAMES = "jemalloc, tcmalloc and mimalloc"
  end
end
