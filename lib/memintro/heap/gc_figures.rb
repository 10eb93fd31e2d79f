# frozen_string_literal: true

module Memintro
  # Questions about the garbage collector: methods of {Memintro}.
  module GcFigures
    # What the collector did while the block ran, in all threads. Costs some 10 µs; of its own objects none is counted.
    #
    # @yield
    # @return [GcDelta] with the block's value; an exception of the block passes through
    # @raise [ArgumentError] without a block
    # @raise [RactorError] in a Ractor on Ruby 3.3, until the main one has called it once
    # @example
    #   Memintro.gc_delta { 1_000.times { Object.new } }.objects_allocated   # => 1_000
    def gc_delta
      raise ArgumentError, "gc_delta needs a block: Memintro.gc_delta { … }" unless block_given?

      Loading.need(:GcDelta)
      # Filled twice, so that the hashes are there before counting begins.
      before = GC.stat
      after = GC.stat
      begun = GC.total_time
      GC.stat(before)
      value = yield
      GC.stat(after)
      GcDelta.new(value, before, after, GC.total_time - begun)
    end
  end
end
