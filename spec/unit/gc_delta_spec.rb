# frozen_string_literal: true

require_relative "../spec_helper"
require "memintro"

RSpec.describe Memintro::GcDelta do
  it "has the difference of any counter, the shares by name, and the block's value" do
    before = GC.stat.merge(count: 10, minor_gc_count: 6, major_gc_count: 4, total_allocated_objects: 1_000,
                           total_freed_objects: 900, heap_live_slots: 500)
    after = before.merge(count: 13, minor_gc_count: 8, major_gc_count: 5, total_allocated_objects: 1_500,
                         total_freed_objects: 1_000, heap_live_slots: 450)
    delta = described_class.new(:value, before, after, 2_500_000)
    expect(delta).to be_frozen
    expect([delta.value, delta.before, delta.after]).to eq([:value, before, after])
    expect([delta.objects_allocated, delta.objects_freed, delta.gc_count, delta.minor_gc_count, delta.major_gc_count,
            delta.gc_time_ns]).to eq([500, 100, 3, 2, 1, 2_500_000])
    expect([delta[:heap_live_slots], delta["count"], delta[:objects_freed]]).to eq([-50, 3, 100])
    expect(delta.to_h.keys).to eq(described_class::ATTRIBUTES)
    expect(delta.to_h[:counters].keys).to eq(GC.stat.keys)
    expect(delta.inspect)
      .to eq("#<Memintro::GcDelta 500 objects allocated, 100 freed, 2 minor and 1 major GCs, 2.5 ms>")
  end

  it "names the counters there are when asked for another" do
    expect { Memintro.gc_delta {}[:cuont] }
      .to raise_error(ArgumentError, /no counter :cuont; there are objects_allocated, .*heap_live_slots/)
  end

  it "counts exactly what the block makes, and nothing of its own" do
    GC.disable
    expect(Array.new(3) { Memintro.gc_delta {}.objects_allocated }.last).to eq(0)
    work = proc { 1.upto(1_000) { Object.new } }
    expect(Array.new(3) { Memintro.gc_delta(&work).objects_allocated }.last).to eq(1_000)
  ensure
    GC.enable
  end

  it "tells major from minor collections" do
    GC.disable
    delta = Memintro.gc_delta { [true, false].each { |full| GC.start(full_mark: full) } }
    expect([delta.minor_gc_count, delta.major_gc_count, delta.gc_count]).to eq([1, 1, 2])
    expect(Memintro.gc_delta { 2.times { GC.start } }).to have_attributes(major_gc_count: 2, gc_time_ns: be_positive)
  ensure
    GC.enable
  end

  it "lets an exception, a throw and a break through" do
    expect { Memintro.gc_delta { raise "on purpose" } }.to raise_error("on purpose")
    expect(catch(:out) { Memintro.gc_delta { throw :out, 3 } }).to eq(3)
    expect(Memintro.gc_delta { break 4 }).to eq(4)
    expect { Memintro.gc_delta }.to raise_error(ArgumentError, /needs a block/)
  end

  it "may be nested" do
    inner = nil
    outer = Memintro.gc_delta { inner = Memintro.gc_delta { GC.start } }
    expect([outer.major_gc_count, inner.major_gc_count]).to eq([1, 1])
    expect(outer.value).to equal(inner)
  end
end
