# frozen_string_literal: true

require "spec_helper"

# Tracking ends during allocations, births of threads, signals and forks: docs/design/waiting.md.
RSpec.describe "A stop", :race do
  # Threads that allocate at the same time. The block that each of them resizes at a stop is live, and is not listed.
  ALLOCATING = 6

  # modes: one letter for each start, in turn. f: full, b: with a budget, d: with stacks, s: sampled; a capital: its
  # mode changes before the stop.
  def stops(rounds, modes, *more, way:, env: {})
    native(program("stops.c"), rounds, modes, *more, way: way, env: env, deadline_seconds: 100)
  end

  TruthDriver::WAYS.each do |way|
    it "is the end of all figures: later readings equal the first one, #{way}" do
      figures = stops(200, "fbdsFS", way: way)
      expect(figures).to include(moved: 0, failed: 0, dropped: 0, missed: 0)
      expect(figures[:blocks]).to be > 10_000
    end

    it "leaves the blocks of the sums, after any earlier tracking, #{way}" do
      %w[fs bS ds].each do |modes|
        figures = stops(60, modes, way: way)
        expect(figures).to include(moved: 0, unlisted: be_between(0, ALLOCATING))
      end
    end

    it "is one in children as well, which fork at any moment, #{way}" do
      figures = stops(100, "fbdsFS", "forks", way: way)
      expect(figures).to include(moved: 0, failed: 0, wrong_children: 0)
      expect(figures[:children]).to be > 20
    end
  end

  it "is one before another allocator" do
    jemalloc = NativePrograms.jemalloc or skip "libjemalloc2 is not installed"
    env = { "LD_PRELOAD" => "#{Subprocess::HOOK}:#{jemalloc}" }
    figures = stops(100, "fbdsFS", way: :preloaded, env: env)
    expect(figures).to include(moved: 0, failed: 0, dropped: 0, missed: 0)
  end
end
