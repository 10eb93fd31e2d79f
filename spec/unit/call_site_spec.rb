# frozen_string_literal: true

require_relative "../spec_helper"
require "memintro"

RSpec.describe "a call site" do
  include_context "with a fake native"

  let(:leak) { Memintro::CallSite.new(FakeNative::ROWS[1], nil, Memintro.epoch) }
  let(:native_caller) { Memintro::CallSite.new(FakeNative::ROWS[2], nil, Memintro.epoch) }

  it "reads the columns that the extension writes" do
    code = "p Memintro.const_get(:Native)::SITE_COLUMNS == Memintro::SiteRow::COLUMNS"
    expect(run_ruby(code: code, requires: %w[memintro memintro/malloc/site_row]).must_succeed.stdout).to eq("true\n")
  end

  it "has the figures of its row and those that follow from them" do
    expect(leak.to_h).to eq(
      name: "/app/leak.rb:12", path: "/app/leak.rb", lineno: 12, kind: :ruby, allocations: 100_000, frees: 50_000,
      total_bytes: 102_400_000, freed_bytes: 51_200_000, live_bytes: 51_200_000, live_blocks: 50_000,
      mean_lifespan: 0.5, max_lifespan: 2, age_total: 25_000, growth: 50_000_000
    )
  end

  it "has no path or line where it is not Ruby, and may have shrunk" do
    expect(native_caller.to_h).to include(name: "libz.so.1(deflateInit2_+0x9c)", path: nil, lineno: nil, kind: :native,
                                          growth: -500)
  end

  it "has a mean lifespan of 0.0 while nothing was given back" do
    row = [9, :ruby, "a.rb", 1, 5, 0, 50, 0, 0, 0, 0]
    expect(Memintro::CallSite.new(row).mean_lifespan).to be(0.0)
  end

  it "counts only the old blocks as live where only they were asked for" do
    old = Memintro::CallSite.new(FakeNative::ROWS[1], [2048, 2], 0)
    expect([old.live_bytes, old.live_blocks, old.total_bytes, old.growth]).to eq([2048, 2, 102_400_000, 50_000_000])
  end

  it "is frozen, compared by value, and one short line even with a name of 10 kB that is not UTF-8" do
    odd = Memintro::CallSite.new([9, :ruby, "\xFF".b * 10_000, 1, 5, 0, 50, 0, 0, 0, 0])
    expect(leak).to be_frozen
    expect(leak).to eq(Memintro::CallSite.new(FakeNative::ROWS[1]))
    expect(leak.inspect).to eq("#<Memintro::CallSite /app/leak.rb:12 live 48.8 MiB in 50000 blocks, " \
                               "100000 allocations, 50000 frees>")
    expect(odd.inspect.size).to be < 200
    expect(odd.inspect).to be_valid_encoding
  end

  describe "#each_block" do
    before { native.block_list = [0x1000, 1024, 0, 1.0, 0x2000, 512, 3, 2.5] }

    it "yields one array of size, generation of birth and address" do
      expect(leak.each_block.to_a).to eq([[1024, 7, 0x1000], [512, 4, 0x2000]])
      seen = []
      expect(leak.each_block(&->(block) { seen << block })).to be(leak)
      expect(seen).to eq(leak.each_block.to_a)
      expect(leak.each_block.first).to eq([1024, 7, 0x1000])
      expect(leak.each_block.map(&:first)).to eq([1024, 512])
      expect(leak.each_block.sum { |size, _generation, _address| size }).to eq(1536)
      expect(native.calls).to include([:blocks, 3])
    end

    it "knows how many blocks each stands for" do
      expect(leak.enum_for(:each_weighted_block).map { |*, weight| weight }).to eq([1.0, 2.5])
    end

    it "visits nothing once the blocks have been forgotten: the number may be another site's" do
      site = leak
      Memintro.clear
      expect(site.each_block.to_a).to eq([])
      expect(native.calls).not_to include([:blocks, 3])
    end

    it "is refused for what was read from a file" do
      expect { Memintro::CallSite.new(FakeNative::ROWS[1]).each_block {} }
        .to raise_error(Memintro::Error, /was read from a file/)
    end
  end
end
