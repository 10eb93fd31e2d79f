# frozen_string_literal: true

require_relative "../spec_helper"
require "memintro"

RSpec.describe Memintro::Estimates do
  include_context "with a fake native"

  let(:totals) { Memintro::Totals.new(1000, 400, 10, 4, 1, 64, 2, [900.0, 500.0, 25.0, 9.0]) }
  # Variances of allocations, frees, total and freed bytes, growth, age total, and its covariance with frees.
  let(:row) { [3, :ruby, "/app/a.rb", 7, 100, 40, 5000, 2000, 80, 3, 500, [16.0, 9.0, 400.0, 300.0, 64.0, 36.0, 18.0]] }
  let(:site) { Memintro::CallSite.new(row) }

  it "gives totals their standard errors; a block that is gone makes what is live no less sure" do
    expect(totals).to be_estimated.and be_frozen
    expect([totals.allocated_bytes_standard_error, totals.live_bytes_standard_error, totals.live_blocks_standard_error])
      .to eq([30.0, 20.0, 4.0])
    expect(totals.to_h).to include(estimated: true, frees_standard_error: 3.0, live_bytes: 600)
    expect([totals[:live_bytes_standard_error], totals["estimated"], totals[:frees]]).to eq([20.0, true, 4])
    expect(totals.inspect).to eq("#<Memintro::Totals live ~600 B ±20 B in ~6 ±4 blocks, allocated ~1000 B ±30 B in " \
                                 "~10 ±5, freed ~400 B ±23 B in ~4 ±3>")
  end

  it "says of exact figures that they are" do
    exact = Memintro::Totals.new(1000, 400, 10, 4, 1, 64, 2)
    expect([exact.estimated?, exact.live_bytes_standard_error, exact[:estimated]]).to eq([false, 0.0, false])
    expect(exact.to_h.keys).to eq(Memintro::Totals::ATTRIBUTES)
    expect(exact).not_to eq(totals)
  end

  it "has no standard error of what has none" do
    expect { totals.standard_error(:dropped) }.to raise_error(ArgumentError, /no standard error of :dropped; there is/)
    expect { totals[:dropped_standard_error] }.to raise_error(ArgumentError, /has no :dropped_standard_error/)
  end

  it "is an upper bound of what happened between two moments" do
    flow = totals - Memintro::Totals.new(100, 0, 1, 0, 0, 64, 0, [100.0, 0.0, 4.0, 0.0])
    expect([flow.allocated_bytes_standard_error,
            flow.live_bytes_standard_error]).to eq([Math.sqrt(800), Math.sqrt(1300)])
    expect((totals - Memintro::Totals.new(0, 0, 0, 0, 0, 0, 0)).allocated_bytes_standard_error).to eq(30.0)
  end

  it "gives call sites theirs, the old blocks' too" do
    expect(site.standard_errors).to eq(
      allocations_standard_error: 4.0, frees_standard_error: 3.0, total_bytes_standard_error: 20.0,
      freed_bytes_standard_error: Math.sqrt(300), live_bytes_standard_error: 10.0,
      live_blocks_standard_error: Math.sqrt(7), mean_lifespan_standard_error: 0.0,
      age_total_standard_error: 6.0, growth_standard_error: 8.0
    )
    old = Memintro::CallSite.new(row, [700, 5, 49.0, 4.0])
    expect([old.live_bytes_standard_error, old.live_blocks_standard_error]).to eq([7.0, 2.0])
    expect(site.inspect).to eq("#<Memintro::CallSite /app/a.rb:7 live ~2.9 KiB ±10 B in ~60 ±3 blocks, ~100 ±4 " \
                               "allocations, ~40 ±3 frees>")
  end

  it "does not lose its footing where a difference of variances falls below zero" do
    expect(Memintro::Totals.new(1, 1, 1, 1, 0, 0, 0, [1.0, 1.1, 1.0, 1.1]).live_bytes_standard_error).to eq(0.0)
  end

  describe Memintro::ThreadTotals do
    it "knows the bytes that were asked for exactly" do
      mine = described_class.new(1000, 400, 10, 4, [100.0, 4.0, 1.0])
      expect(mine.to_h).to eq(allocated_bytes: 1000, freed_bytes: 400, allocations: 10, frees: 4, estimated: true,
                              freed_bytes_standard_error: 10.0, allocations_standard_error: 2.0,
                              frees_standard_error: 1.0)
      expect(mine.inspect).to eq("#<Memintro::ThreadTotals allocated 1000 B in ~10 ±2, freed ~400 B ±10 B in ~4 ±1>")
      none = mine - described_class.new(1000, 400, 10, 4, [100.0, 4.0, 1.0])
      expect(none.to_h).to include(allocations: 0, allocations_standard_error: 0.0)
    end
  end
end
