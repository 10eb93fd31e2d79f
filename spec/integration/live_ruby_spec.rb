# frozen_string_literal: true

require "spec_helper"
require "tmpdir"

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

  it "finds the hook from a copy of the extension elsewhere, as a Ruby::Box loads it" do
    Dir.mktmpdir do |folder|
      result = run_ruby(code: <<~RUBY, requires: ["memintro/support/paths"])
        require "fileutils"
        copy = File.join(#{folder.inspect}, "memintro.so")
        FileUtils.cp(Memintro::Paths.extension, copy)
        Memintro::Paths.define_singleton_method(:extension) { copy }
        require "memintro"
        Memintro.start
        kept = Array.new(10) { "x" * 100_000 }
        puts $LOADED_FEATURES.include?(copy), Memintro::Native.hook_path == Memintro::Paths.hook, Memintro.totals.live_bytes >= 1_000_000
      RUBY
      expect(result.must_succeed.stdout).to eq("true\n" * 3)
    end
  end

  it "skips a module that is malformed, and doctor names it; all others are patched" do
    Dir.mktmpdir do |folder|
      odd = File.join(folder, "libodd.so")
      # DT_SYMENT, the size of a symbol, 24: the loader does not look at it.
      bytes = File.binread(shared_module("tiny.c"))
      at = bytes.index([11, 24].pack("Q2")) or raise "no DT_SYMENT"
      bytes.setbyte(at + 8, 25)
      File.binwrite(odd, bytes)
      figures = live("malformed", odd)
      expect(figures[:left_alone]).to eq([{ module: odd, symbol: nil, slot: 0, value: 0, state: "malformed" }])
      expect(figures[:slots]).to include(patched: be > 10, malformed: 1, lost: 0)
      expect(figures[:said]).to include("Left alone:\n  - #{odd}: the module could not be read and was skipped")
        .and match(/^slots +\d+ patched, .*1 malformed in \d+ modules$/)
      expect(figures).to include(works: true, unseen: 0, seen: 1)
    end
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
    # The machine may be busy, so one good run of a dozen is enough; a hook still in place would cost a tenth each time.
    # glibc keeps its memory meanwhile: what it gives back and takes again depends on which block lies last.
    env = { "MALLOC_TRIM_THRESHOLD_" => "1000000000", "MALLOC_TOP_PAD_" => "100000000" }
    ratios = []
    ratios << live("old_speed", env: env).fetch(:ratio) until ratios.size == 12 || ratios.any? { |ratio| ratio < 1.05 }
    expect(ratios.min).to be < 1.05
  end

  it "counts the live bytes that glibc counts, and what lies between is its rounding" do
    # A threshold that is given stays where it is; otherwise freeing a mapping raises it. In-band records would be
    # counted by glibc.
    env = { "MALLOC_MMAP_THRESHOLD_" => (128 << 10).to_s, "MEMINTRO_RECORDS" => "table" }
    figures = live("live_bytes", shared_module("native_work.c"), way: :preloaded, env: env)
    live, glibc, heap, chunks = figures.values_at(:live, :glibc, :heap, :chunks)
    expect(live).to be_between(70_000_000, glibc)
    # In each thread's cache glibc counts as used what was freed: 64 sizes, seven blocks each, 240 KiB at most.
    expect(heap - chunks).to be_between(-4096, 512 << 10)
    expect(glibc).to be_within(2 << 20).of(live + (16 * figures[:blocks]))
  end
end
