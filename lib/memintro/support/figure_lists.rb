# frozen_string_literal: true

# Made by `rake figures` from crates/abi/src/lists.rs.
module Memintro
  # The lists of figures: for each its name, how it adds up, its unit, its column in tables with its place, and the
  # heading of that column. {Figures} reads them.
  # @api private
  module FigureLists
    SITE = [
      [:allocations, :sum, :count, :always, 3, "allocs"],
      [:frees, :sum, :count, :always, 4, "frees"],
      [:total_bytes, :sum, :bytes, :sorted, nil, "allocated"],
      [:freed_bytes, :sum, :bytes, :sorted, nil, "freed"],
      [:live_bytes, :derived, :bytes, :always, 1, "live"],
      [:live_blocks, :derived, :count, :always, 2, "blocks"],
      [:mean_lifespan, :derived, :mean_age, :sorted, nil, "mean life"],
      [:max_lifespan, :max, :age, :sorted, nil, "max life"],
      [:age_total, :sum, :ages, :sorted, nil, "age total"],
      [:growth, :derived, :change, :always, 5, "growth"],
      [:old_bytes, :old, :bytes, :always, 6, "older than 1 GC"],
      [:old_blocks, :old, :count, nil, nil, ""],
      [:live_objects, :object, :count, :objects, 2, "objects"],
      [:object_bytes, :object, :bytes, :objects, 3, "in slots"],
      [:object_allocations, :object, :count, :sorted, nil, "objects made"],
      [:retained_bytes, :object, :bytes, :objects, 1, "retained"]
    ].each(&:freeze).freeze
    OBJECTS = [
      [:allocations, :sum, :count, nil, nil, ""],
      [:frees, :sum, :count, nil, nil, ""],
      [:total_bytes, :sum, :bytes, nil, nil, ""],
      [:freed_bytes, :sum, :bytes, nil, nil, ""],
      [:marked_bytes, :exact, :bytes, nil, nil, ""],
      [:old_objects, :old, :count, nil, nil, ""],
      [:old_bytes, :old, :bytes, nil, nil, ""]
    ].each(&:freeze).freeze
    TOTALS = [
      [:allocated_bytes, :sum, :bytes, nil, nil, ""],
      [:freed_bytes, :sum, :bytes, nil, nil, ""],
      [:live_bytes, :derived, :bytes, nil, nil, ""],
      [:allocations, :sum, :count, nil, nil, ""],
      [:frees, :sum, :count, nil, nil, ""],
      [:live_blocks, :derived, :count, nil, nil, ""],
      [:missed_frees, :exact, :count, nil, nil, ""],
      [:tracker_bytes, :exact, :bytes, nil, nil, ""],
      [:dropped, :exact, :count, nil, nil, ""],
      [:sites, :state, :count, nil, nil, ""],
      [:generation, :state, :count, nil, nil, ""]
    ].each(&:freeze).freeze
    # The rows of an {Account}, and what each is a part of.
    ACCOUNT = {
      ruby_heap_live: :ruby_heap,
      ruby_heap_free: :ruby_heap,
      malloc_ruby_objects: :malloc,
      malloc_iseqs: :malloc,
      malloc_internal: :malloc,
      malloc_native: :malloc,
      malloc_free: :malloc,
      thread_stacks: :other,
      mapped_files: :files,
      anonymous: :other,
      memintro: :files,
      unattributed: :other
    }.freeze

    # Readers of the figures that a row of {CallSite} holds.
    module Readers
      # @return [Integer] allocations made here
      def allocations = @row[4]

      # @return [Integer] blocks from here that were given back, wherever that happened
      def frees = @row[5]

      # @return [Integer] bytes allocated here
      def total_bytes = @row[6]

      # @return [Integer] bytes of the blocks from here that were given back
      def freed_bytes = @row[7]

      # @return [Integer] sum of the ages, in GC generations, at which blocks from here were given back
      def age_total = @row[8]

      # @return [Integer] greatest age, in GC generations, at which a block from here was given back
      def max_lifespan = @row[9]
    end

    # Readers of the figures that {Totals} hold.
    module TotalReaders
      # @return [Integer] bytes that all tracked allocations asked for
      def allocated_bytes = @figures[0]

      # @return [Integer] bytes of the tracked blocks that were given back
      def freed_bytes = @figures[1]

      # @return [Integer] number of tracked allocations
      def allocations = @figures[2]

      # @return [Integer] number of tracked blocks that were given back
      def frees = @figures[3]

      # @return [Integer] blocks whose free went past the hook, found out when their address was handed out again
      def missed_frees = @figures[4]

      # @return [Integer] resident bytes that tracking itself uses
      def tracker_bytes = @figures[5]

      # @return [Integer] allocations that could not be followed because the budget, the memory or the table's room
      #   for different sizes (65,536 of 64 KiB and more) ran out
      def dropped = @figures[6]
    end
  end
end
