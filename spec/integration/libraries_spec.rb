# frozen_string_literal: true

require "spec_helper"

# Allocations of libc and libstdc++ for a program are counted once: not missed, not twice.
RSpec.describe "Allocations inside the C and C++ libraries" do
  # [allocations, frees, allocated_bytes, freed_bytes] of each piece of work in libraries.cc.
  expected = {
    string: [1, 1, 1001, 1001], kept_string: [2, 0, 5033, 0], vector: [2, 2, 12_000, 12_000],
    map: [100, 100, 4000, 4000], list: [7, 7, 672, 672], shared: [1, 1, 96, 96], aligned: [1, 1, 256, 256],
    after_bad_alloc: [1, 1, 77, 77], strdup: [1, 1, 10, 10], strndup: [1, 1, 5, 5], realpath: [1, 1, 6, 6]
  }.freeze

  TruthDriver::WAYS.each do |way|
    it "are exact, #{way}" do
      figures = native(program("libraries.cc"), way: way)
      expect(figures).to include(expected)
      %i[asprintf fopen getline opendir bad_alloc].each do |name|
        allocations, frees, allocated_bytes, freed_bytes = figures.fetch(name)
        expect([allocations, allocated_bytes]).to eq([frees, freed_bytes]), "#{name}: #{figures[name]}"
      end
      expect(figures[:fopen]).to match [2, 2, be_between(1024, 8192), be_between(1024, 8192)]
      expect(figures[:setenv]).to match [be_positive, 0, be_positive, 0]
    end
  end
end
