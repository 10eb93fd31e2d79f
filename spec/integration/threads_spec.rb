# frozen_string_literal: true

require "spec_helper"

# Native threads that are born, die, are interrupted, and hand blocks to each other.
RSpec.describe "Native threads under the hook", :race do
  def threads(name, number, way:,
              **options) = native(program("threads.c", variant: :now), name, number, way: way, **options)

  TruthDriver::WAYS.each do |way|
    it "keep exact figures through a thousand short lives, #{way}" do
      figures = threads("storm", 1000, way: way)
      bytes = 1000 * ((8 * 100) + 28 + (8 * 200) + 28)
      expect(figures).to include(storm_malloc: [16_000, 16_000, bytes, bytes], missed_frees: 0, dropped: 0)
      expect(figures[:tracker_bytes]).to be < 16 << 20
    end

    it "may be a thousand at a time on small stacks, #{way}" do
      figures = threads("crowd", 1000, way: way)
      expect(figures).to include(storm_malloc: [4000, 3000, 200_000, 150_000], missed_frees: 0, dropped: 0)
    end

    it "may be cancelled, and clean up, #{way}" do
      figures = threads("cancelling", 100, way: way)
      made, freed, made_bytes, freed_bytes = figures[:dying_malloc]
      expect([made, made_bytes]).to eq [freed, freed_bytes]
      expect(made).to be_between(50, 100)
      expect(figures[:storm_malloc].each_slice(2).map(&:uniq).map(&:size)).to eq [1, 1]
      expect(figures).to include(missed_frees: 0, dropped: 0)
    end

    it "may free and allocate after their thread-locals are gone, #{way}" do
      figures = threads("dying", 200, way: way)
      made, freed, made_bytes, freed_bytes = figures[:dying_malloc]
      # Every call of the destructor freed one block; what is set in the last round is leaked by design.
      expect([freed, freed_bytes]).to eq [figures[:destructor_calls], 321 * figures[:destructor_calls]]
      expect(made_bytes).to eq ((made - 1) * 321) + 5
      expect(made - 1).to be_between(freed, freed + 200)
      expect(figures).to include(missed_frees: 0, dropped: 0)
    end

    it "lose no block and no count when an address goes from thread to thread, #{way}" do
      figures = threads("handing", 250_000, way: way)
      made, freed, made_bytes, freed_bytes = figures[:handed_malloc]
      expect([made, freed]).to eq [1_000_000, 1_000_000]
      expect(freed_bytes).to eq made_bytes
      expect(figures).to include(negative: 0, missed_frees: 0, dropped: 0)
    end
  end

  it "need at most 1 KiB more stack in a signal handler, a thread's first call included" do
    bare = native(program("threads.c", variant: :now), "signals", 20, way: :bare, env: { "THREADS_BARE" => "1" })
    TruthDriver::WAYS.each do |way|
      hooked = threads("signals", 20, way: way)
      expect(hooked).to include(handled: 40, handler_malloc: [40, 40, 1920, 1920], missed_frees: 0)
      expect(hooked[:deepest_bytes] - bare[:deepest_bytes]).to be <= 1024
    end
  end

  it "need at most 1 KiB more stack where Ruby is asked for its line, a line's first call included" do
    code = <<~'RUBY'
      depth = Fiddle::Function.new(Fiddle.dlopen(ARGV.first)["depth"], [], Fiddle::TYPE_INT, need_gvl: true)
      deepest = -> { Array.new(3) { eval("\n" * rand(1_000) + "depth.call", binding, "line.rb") }.max }
      Memintro.stop
      deepest.call
      bare = deepest.call
      found = { full: [:full, nil], sampled: [:sampled, 1] }.transform_values do |mode, bytes|
        Memintro.start(mode: mode, sample_bytes: bytes)
        [deepest.call - bare, Memintro.stop && Memintro.top(nil).count { |site| site.path == "line.rb" }]
      end
      puts JSON.generate(found)
    RUBY
    library = shared_module("depth.c", variant: :now)
    TruthDriver::WAYS.each do |way|
      found = run_ruby(nil, library, code: code, requires: %w[memintro fiddle json], way: way).must_succeed.json
      expect(found.values).to all(match([be <= 1024, be_positive]))
    end
  end
end
