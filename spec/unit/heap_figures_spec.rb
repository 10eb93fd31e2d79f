# frozen_string_literal: true

require_relative "../spec_helper"
require "memintro"

RSpec.describe "figures of Ruby's heap" do
  it "are frozen values with a hash, a reader by name and one short line" do
    row = Memintro::HistogramRow.new("User", 12_345, 5_000_000, false)
    expect(row).to be_frozen
    expect(row.to_h).to eq(name: "User", count: 12_345, bytes: 5_000_000)
    expect([row[:count], row.internal?]).to eq([12_345, false])
    expect(row.inspect).to eq("#<Memintro::HistogramRow User: 12,345, 4.8 MiB>")
    expect(row).to eq(Memintro::HistogramRow.new("User", 12_345, 5_000_000, false))
    expect(row).not_to eq(Memintro::InternalRow.new("User", 12_345, 5_000_000))
    expect(Memintro::IseqTotals.new(2, 3000).inspect).to eq("#<Memintro::IseqTotals 2 iseqs, 2.9 KiB>")
  end

  it "tell where an instruction sequence is from" do
    iseq = Memintro::Iseq.new("/app/a.rb", 12, "block in run", 936)
    expect(iseq.location).to eq("/app/a.rb:12")
    expect(iseq.inspect).to eq("#<Memintro::Iseq /app/a.rb:12 block in run: 936 B>")
    expect((iseq in { lineno: 12, label: /run/ })).to be(true)
  end

  it "sum up the pools of the heap" do
    pools = [Memintro::Occupancy::Pool.new(40, 10, 4080, 1000, 6, 60),
             Memintro::Occupancy::Pool.new(80, 2, 408, 408, 0, 0)]
    holders = [Memintro::Occupancy::Holder.new("String", 60, 6)]
    occupancy = Memintro::Occupancy.new(Memintro::List.new(pools), Memintro::List.new(holders), 3)
    expect(occupancy.to_h).to include(pages: 12, slots: 4488, live_slots: 1408, free_slots: 3080, sparse_pages: 6,
                                      sparse_live_slots: 60, empty_pages: 3,
                                      holders: [{ name: "String", count: 60, pages: 6 }])
    expect(occupancy.inspect)
      .to eq("#<Memintro::Occupancy 12 pages, 31.4% of their slots taken; 6 pages with under 5%, held by String>")
    expect(pools[0].inspect)
      .to eq("#<Memintro::Occupancy::Pool 40 B slots: 10 pages, 24.5% taken, 6 pages with under 5%>")
    expect(holders[0].inspect).to eq("#<Memintro::Occupancy::Holder String: 60 on 6 pages>")
  end

  it "speak of one page, and of one sequence, as people do" do
    pool = Memintro::Occupancy::Pool.new(40, 1, 408, 102, 1, 3)
    holder = Memintro::Occupancy::Holder.new("String", 3, 1)
    occupancy = Memintro::Occupancy.new(Memintro::List.new([pool]), Memintro::List.new([holder]), 0)
    expect([occupancy, pool, holder, Memintro::IseqTotals.new(1, 300)].map(&:inspect))
      .to eq(["#<Memintro::Occupancy 1 page, 25.0% of its slots taken; 1 page with under 5%, held by String>",
              "#<Memintro::Occupancy::Pool 40 B slots: 1 page, 25.0% taken, 1 page with under 5%>",
              "#<Memintro::Occupancy::Holder String: 3 on 1 page>", "#<Memintro::IseqTotals 1 iseq, 300 B>"])
  end

  it "refuse wrong arguments before the heap is walked" do
    expect { Memintro.histogram(1.5) }.to raise_error(TypeError, /n is 1.5; it must be an Integer from 0, or nil/)
    expect { Memintro.histogram(by: :name) }
      .to raise_error(ArgumentError, "by is :name; it must be one of :bytes, :count")
    expect { Memintro.top_iseqs(2**70) }
      .to raise_error(ArgumentError, "n is #{2**70}; it must be an Integer from 0 to #{(2**63) - 1}, or nil")
    expect { Memintro.top_iseqs(by: nil) }.to raise_error(TypeError, /by is nil/)
  end
end
