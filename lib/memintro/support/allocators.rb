# frozen_string_literal: true

# Made by `rake figures` from crates/abi/src/allocators.rs.
module Memintro
  # The allocators that memintro knows besides that of the C library.
  # @api private
  module Allocators
    # The beginning of the library's file name, the rest of the names of files to preload, and the figures which, with
    # these factors, add up to the bytes that it has from the kernel.
    Allocator = Struct.new(:library, :endings, :held)
    ALL = {
      jemalloc: Allocator.new("libjemalloc", %w[.so.2], { resident: 1 }),
      tcmalloc: Allocator.new("libtcmalloc", %w[_minimal.so.4], { heap: 1, unmapped: -1 }),
      mimalloc: Allocator.new("libmimalloc", %w[.so.3 .so.2], { committed: 1 })
    }.each_value(&:freeze).freeze
    # Their names, for sentences.
    NAMES = "jemalloc, tcmalloc and mimalloc"
  end
end
