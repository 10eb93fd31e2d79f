# frozen_string_literal: true

require "spec_helper"

# A start in a running Ruby, with the libraries that Ruby programs bring along.
RSpec.describe "A live start in Ruby" do
  def live(*arguments, way: :live, **options)
    run_ruby("live.rb", *arguments, way: way, **options).must_succeed.json.fetch(:result)
  end

  it "follows libz, which Debian binds lazily, from its first call on" do
    figures = live("zlib")
    expect(figures).to include(same: true)
    # zlib's state for one deflate is more than 256 KiB; twenty of them came from that line.
    expect(figures[:allocations]).to be >= 20 * 5
    expect(figures[:total]).to be >= 20 * 256 * 1024
  end

  it "follows libffi and what is called through it" do
    expect(live("fiddle_closure", shared_module("blocks.c")))
      .to eq(results: 1275, kept: 100, native: [1000, 900, 5000], closures: true, missed: 0)
  end

  %w[before after].each do |order|
    it "follows libxml2, required #{order} the start, and leaves it working after stop and in the next start" do
      skip "nokogiri is not installed" unless run_ruby(code: "require 'nokogiri'", requires: []).success?
      figures = live("nokogiri", order)
      first, second, third, fourth = figures[:sums]
      expect([first, second]).to eq [second, first]
      expect([third, fourth].map(&:positive?)).to eq [true, true]
      expect(figures[:tracked]).to be > 500 * 100
      expect(figures[:again]).to be > 200 * 100
      expect(figures).to include(dropped: 0, missed: 0)
    end
  end

  it "may be repeated a thousand times while four threads allocate, and leaves nothing behind" do
    figures = live("rounds", shared_module("blocks.c"), 1000)
    expect(figures).to include(negative: 0, tracking: false)
    expect(figures[:map_growth]).to be <= 12
    expect(figures[:rss_growth_kb]).to be < 12_000
  end

  it "may meet stops, snapshots and loads on other threads" do
    expect(live("all_at_once", shared_module("blocks.c"))).to eq(errors: [], live: true, tracking: false)
  end

  it "costs nothing after stop" do
    # The machine may be busy, so one good run of three is enough; a hook still in place would cost a tenth each time.
    # glibc keeps its memory meanwhile: what it gives back and takes again depends on which block lies last.
    env = { "MALLOC_TRIM_THRESHOLD_" => "1000000000", "MALLOC_TOP_PAD_" => "100000000" }
    ratios = Array.new(3) { live("old_speed", env: env).fetch(:ratio) }
    expect(ratios.min).to be < 1.05
  end

  it "counts the live bytes that glibc counts, and what lies between is its rounding" do
    # A threshold that is given stays where it is; otherwise freeing a mapping raises it.
    env = { "MALLOC_MMAP_THRESHOLD_" => (128 << 10).to_s }
    figures = live("live_bytes", shared_module("native_work.c"), way: :preloaded, env: env)
    live, glibc, heap, chunks = figures.values_at(:live, :glibc, :heap, :chunks)
    expect(live).to be_between(70_000_000, glibc)
    # In each thread's cache glibc counts as used what was freed: 64 sizes, seven blocks each, 240 KiB at most.
    expect(heap - chunks).to be_between(-4096, 512 << 10)
    expect(glibc).to be_within(2 << 20).of(live + (16 * figures[:blocks]))
  end
end
