# frozen_string_literal: true

require "spec_helper"

# Behind the hook stands an allocator whose functions call each other through their symbols.
RSpec.describe "Allocations by functions that call others of the allocator's" do
  # [allocations, frees, allocated_bytes, freed_bytes] of a hundred calls, of whose blocks 75 are freed.
  expected = {
    malloc: [100, 75, 100_000, 75_000], calloc: [100, 75, 200_000, 150_000], memalign: [100, 75, 300_000, 225_000],
    aligned_alloc: [100, 75, 646_400, 484_800], valloc: [100, 75, 70_000, 52_500], pvalloc: [100, 75, 80_000, 60_000],
    posix_memalign: [100, 75, 90_000, 67_500], realloc_new: [100, 75, 110_000, 82_500],
    realloc: [200, 175, 130_000, 100_000], reallocarray: [200, 175, 140_000, 107_500], refused: [100, 75, 5000, 3750],
    missed_frees: 0
  }.freeze

  TruthDriver::WAYS.each do |way|
    it "are counted once, #{way}" do
      allocator = shared_module("roundabout.c")
      preloads = way == :preloaded ? "#{Subprocess::HOOK}:#{allocator}" : allocator
      expect(native(program("roundabout.c"), way: way, env: { "LD_PRELOAD" => preloads })).to include(expected)
    end

    it "are so with the system's allocator, #{way}" do
      expect(native(program("roundabout.c"), way: way)).to include(expected.except(:refused))
    end
  end
end
