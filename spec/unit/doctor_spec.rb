# frozen_string_literal: true

require_relative "../spec_helper"
require "memintro"

RSpec.describe Memintro::Doctor do
  include_context "with a fake native"

  let(:doctor) { Memintro.doctor }
  let(:patches) do
    [["/lib/libruby.so", "malloc", 0x10, 0x99, :patched], ["/lib/libruby.so", "free", 0x18, 0x99, :patched],
     ["/lib/libxml2.so", "free", 0x20, 0x55, :foreign], ["/lib/libz.so", "malloc", 0x28, 0x66, :lost],
     ["/lib/odd.so", nil, 0, 0, :malformed]]
  end

  around do |example|
    former = ENV.to_h.slice("LD_PRELOAD", "MEMINTRO_DISABLE")
    ENV.update("LD_PRELOAD" => nil, "MEMINTRO_DISABLE" => nil)
    example.run
  ensure
    ENV.update({ "LD_PRELOAD" => nil, "MEMINTRO_DISABLE" => nil }.merge(former))
  end

  it "finds nothing wrong where nothing is" do
    expect(doctor.to_h).to include(memintro: Memintro::VERSION, origin: :loaded, mode: :full, problems: [], notes: [],
                                   allocator: "/lib/x86_64-linux-gnu/libc.so.6", left_alone: [])
    expect(doctor).to be_healthy.and be_frozen
    expect(native.calls).to include(:load_hook, :refresh)
  end

  it "counts slots and names those it left alone" do
    allow(native).to receive(:patches).and_return(patches)
    expect([doctor.modules, doctor.slots])
      .to eq([4, { patched: 2, foreign: 1, lost: 1, malformed: 1, refused: 0 }])
    expect(doctor.left_alone.first)
      .to eq({ module: "/lib/libxml2.so", symbol: "free", slot: 0x20, value: 0x55, state: :foreign })
    expect(doctor.to_s).to include("slots      2 patched, 1 foreign, 1 lost, 1 malformed in 4 modules\n")
      .and include("/lib/libxml2.so free: held another function before memintro was loaded, and was left alone\n")
      .and include("  - 1 patched slot was overwritten by other code; what is called through it is")
      .and include("/lib/odd.so: the module could not be read and was skipped")
    expect(doctor.inspect)
      .to eq("#<Memintro::Doctor loaded, full, 2 slots of 4 modules patched, 3 left alone, 0 problems>")
  end

  it "says why the hook does not work here, and goes on" do
    allow(native).to receive(:load_hook).and_raise(Memintro::UnsupportedError)
    expect(doctor.to_h).to include(origin: :none, mode: :off, allocator: nil)
    expect(doctor.problems).to eq([Memintro::UnsupportedError::DEFAULT_MESSAGE])
    expect(doctor.to_s).to include("hook       not loaded\n")
  end

  it "notices a disabled process, a preloaded allocator in front, a wrong variable" do
    ENV.update("MEMINTRO_DISABLE" => "1",
               "LD_PRELOAD" => "/usr/lib/libjemalloc.so.2 /opt/memintro/libmemintro_hook.so")
    Memintro.instance_variable_set(:@configuration, nil)
    allow(Memintro::Configuration).to receive(:new).and_raise(ArgumentError, "MEMINTRO_TOP is wrong")
    expect(doctor.problems)
      .to match([/MEMINTRO_DISABLE=1 is set/,
                 %r{LD_PRELOAD names /usr/lib/libjemalloc.so.2 before memintro's hook}, /MEMINTRO_TOP/])
  end

  it "does not blame an allocator that stands behind" do
    ENV["LD_PRELOAD"] = "/opt/memintro/libmemintro_hook.so:/usr/lib/libjemalloc.so.2"
    expect(doctor.problems).to eq([])
  end

  it "tells of dropped allocations and missed frees" do
    native.figures = FakeNative::TOTALS.dup.tap { |figures| figures[4] = 2 and figures[6] = 5 }
    expect(doctor.notes).to match([/\A5 allocations could not be followed/, /\A2 frees went past/])
  end

  it "lists more escapes for a hook that came later than for one that was there first" do
    later = doctor.escapes
    allow(native).to receive(:load_hook).and_return(:preloaded)
    expect([later.size, Memintro.doctor.escapes.size]).to eq([5, 3])
    expect(later.join).to include("missed_frees").and include("ld.so").and include("mmap").and include("fit their slot")
  end
end
