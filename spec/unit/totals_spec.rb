# frozen_string_literal: true

require_relative "../spec_helper"
require "memintro"

RSpec.describe "totals" do
  include_context "with a fake native"

  let(:totals) { Memintro::Totals.new(1000, 400, 10, 4, 1, 64, 2) }

  it "derives what is live" do
    expect(totals.live_bytes).to eq(600)
    expect(totals.live_blocks).to eq(6)
  end

  it "gives all figures as a hash, one by name, and to patterns" do
    expect(totals.to_h).to eq(allocated_bytes: 1000, freed_bytes: 400, live_bytes: 600, allocations: 10, frees: 4,
                              live_blocks: 6, missed_frees: 1, tracker_bytes: 64, dropped: 2)
    expect([totals[:live_bytes], totals["frees"]]).to eq([600, 4])
    expect((totals in { live_bytes: 600.. })).to be(true)
  end

  it "speaks of one block as people do" do
    expect(Memintro::Totals.new(8, 0, 1, 0, 0, 0, 0).inspect).to include(" live 8 B in 1 block, allocated 8 B in 1,")
    expect(totals.inspect).to include(" in 6 blocks,")
  end

  it "refuses a name it does not have, and lists those it has" do
    expect { totals[:bytes] }.to raise_error(ArgumentError, /has no :bytes; it has allocated_bytes, freed_bytes/)
    expect { totals[1] }.to raise_error(ArgumentError, /has no 1/)
  end

  it "is frozen and compared by value" do
    twin = Memintro::Totals.new(1000, 400, 10, 4, 1, 64, 2)
    expect(totals).to be_frozen
    expect(totals).to eq(twin)
    expect({ totals => 1 }[twin]).to eq(1)
    expect(totals).not_to eq(Memintro::Totals.new(1001, 400, 10, 4, 1, 64, 2))
    expect(totals).not_to eq(Memintro::ThreadTotals.new(1000, 400, 10, 4))
  end

  it "subtracts earlier totals, but not what tracking uses" do
    difference = Memintro::Totals.new(1500, 1400, 20, 19, 3, 128, 2) - totals
    expect(difference).to eq(Memintro::Totals.new(500, 1000, 10, 15, 2, 128, 0))
    expect(difference.live_bytes).to eq(-500)
    expect { totals - 1 }.to raise_error(TypeError, /1 is not a Memintro::Totals/)
  end

  it "is one short line in a console, however large" do
    huge = Memintro::Totals.new(2**62, 2**61, 2**62, 2**61, 2**62, 2**62, 2**62)
    expect(totals.inspect).to eq("#<Memintro::Totals live 600 B in 6 blocks, allocated 1000 B in 10, freed 400 B in 4>")
    expect(huge.inspect.size).to be < 200
  end

  describe Memintro::ThreadTotals do
    let(:mine) { described_class.new(1000, 400, 10, 4) }

    it "has the thread's four figures" do
      expect(mine.to_h).to eq(allocated_bytes: 1000, freed_bytes: 400, allocations: 10, frees: 4)
      expect(mine.inspect).to eq("#<Memintro::ThreadTotals allocated 1000 B in 10, freed 400 B in 4>")
      expect(mine - described_class.new(1, 2, 3, 4)).to eq(described_class.new(999, 398, 7, 0))
      expect { mine - 5 }.to raise_error(TypeError)
    end
  end
end
