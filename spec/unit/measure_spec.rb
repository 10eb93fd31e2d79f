# frozen_string_literal: true

require_relative "../spec_helper"
require "memintro"

RSpec.describe Memintro::Measurement do
  # Figures stay readable after a stop, also for other examples.
  after { Memintro.clear }

  def filled(**figures)
    all = [*described_class::TIME, *described_class::MALLOC, *described_class::OBJECTS, *described_class::PROCESS]
    defaults = { **all.to_h { |name| [name, 7] }, tracking: :started, problem: nil }
    described_class.new.fill({ **defaults, **figures }, :value, 1)
  end

  let(:sites) do
    [[:ruby, "/app/a.rb", 3, 10, 500, 1, 50], [:ruby, "/app/b.rb", 4, 1, 90, 1, 90],
     [:native, "lib.so(f)", 0, 1, 1, 0, 0]]
  end

  it "has the figures, the sites by each figure, and the value, and is frozen" do
    measurement = filled(allocated_bytes: 591, retained_bytes: 140, sites: sites)
    expect([measurement.allocated_bytes, measurement[:retained_bytes], measurement.gc_count]).to eq([591, 140, 14])
    expect([measurement.top_allocated.map(&:name), measurement.top_retained.map(&:name)])
      .to eq([["/app/a.rb:3"], ["/app/b.rb:4"]])
    expect([measurement.value, measurement.frozen?, measurement.ended?]).to eq([:value, true, true])
    expect(measurement.to_h.keys).to eq(described_class::ATTRIBUTES)
    expect(Memintro::JsonText.parse(measurement.to_json)["top_allocated"])
      .to eq([{ "name" => "/app/a.rb:3", "kind" => "ruby", "allocations" => 10, "allocated_bytes" => 500,
                "retained_blocks" => 1, "retained_bytes" => 50 }])
  end

  it "answers first, in one line" do
    measurement = filled(allocated_bytes: 2_048, allocations: 2, retained_bytes: 0, retained_blocks: 0,
                         objects_allocated: 1_204, objects_retained: 4, wall_ns: 3_100_000, gc_time_ns: 500,
                         minor_gc_count: 1, major_gc_count: 0, sites: [])
    answer = "2.0 KiB allocated in 2 blocks, 0 B retained; 1,204 objects made, 4 retained; 3.1 ms, 1 GC in it " \
             "that took 500 ns"
    expect(measurement.inspect).to eq("#<Memintro::Measurement #{answer}>")
    expect(measurement.to_s.lines.first).to eq("#{answer}.\n")
    expect(measurement.to_s).to match(/^ +4 +7  objects retained$/).and match(/1 minor, 0 major  GCs$/)
  end

  it "says why figures are missing, and that they are nil" do
    lost = filled(**described_class::MALLOC.to_h { |name| [name, nil] }, problem: :began_anew)
    expect(lost.notes)
      .to eq(["tracking was started, stopped or cleared during the block, so there are no figures of malloc"])
    expect(lost.inspect).not_to include("allocated")
    others = filled(objects_unseen: 3, dropped: 1)
    expect([others.objects_retained, others.process_objects_allocated, others.allocated_bytes]).to eq([nil, nil, 7])
    expect(others.notes).to match([/\A3 objects of other Ractors/, /\A1 block could not be followed/])
  end

  it "has no figures, and says so, while its block runs" do
    within = nil
    measurement = Memintro.measure(objects: false) { |one| within = [one.ended?, one.inspect, one.allocated_bytes] }
    expect(within).to eq([false, "#<Memintro::Measurement under way>", nil])
    expect(measurement.allocated_bytes).to be_an(Integer)
  end

  it "takes lambdas and methods without parameters" do
    expect([Memintro.measure(&-> { 5 }).value, Memintro.measure(&"ab".method(:size)).value]).to eq([5, 2])
  end

  it "refuses wrong arguments before the block runs" do
    ran = false
    expect { Memintro.measure }.to raise_error(ArgumentError, /measure needs a block/)
    expect { Memintro.measure(gc: 1) { ran = true } }.to raise_error(TypeError, "gc is 1; it must be true or false")
    expect { Memintro.measure(top: -1) { ran = true } }.to raise_error(ArgumentError, /top is -1/)
    expect { Memintro.compare(a: -> {}) }.to raise_error(ArgumentError, /two pieces of code/)
    expect { Memintro.compare(a: -> {}, b: 5) }.to raise_error(TypeError, /b is 5; it must be a Proc/)
    expect { Memintro.compare(rounds: 0, a: -> {}, b: -> {}) }.to raise_error(ArgumentError, /rounds is 0/)
    expect(ran).to be(false)
  end

  it "stops at 64 measurements within each other, in words, and all others go on" do
    deepest = 0
    descend = proc do |depth|
      deepest = depth
      Memintro.measure(gc: false, objects: false) { descend.call(depth + 1) }
    end
    expect { descend.call(0) }.to raise_error(Memintro::Error, /more than 64 measurements of this thread/)
    expect([deepest, Memintro.tracking?]).to eq([64, false])
    expect(Memintro.measure { "x" * 1_000 }.allocated_bytes).to be >= 1_000
  end
end

RSpec.describe "Memintro::Comparison" do
  def side(**figures)
    defaults = Memintro::Comparison::FIGURES.to_h { |name| [name, [10, 10]] }
    rounds = { **defaults, **figures }.transform_values { |values| values.is_a?(Array) ? values : [values] * 2 }
    made = Array.new(2) { |round| Struct.new(*rounds.keys).new(*rounds.map { |_, values| values[round] }) }
    Memintro::Comparison::Side.new(made, made)
  end

  def comparison(**sides)
    Memintro::Comparison.allocate.tap do |one|
      { rounds: 2, sides: sides, notes: [] }.each { |name, value| one.instance_variable_set(:"@#{name}", value) }
    end
  end

  before { Memintro::Loader.need(:Comparison) }

  it "puts the answer first, with what rounds do not tell" do
    one = side(wall_ns: [1_000, 3_000], allocated_bytes: 1_000, retained_bytes: 0)
    two = side(wall_ns: [2_000, 6_000], allocated_bytes: 3_200, retained_bytes: 2_048, objects_allocated: 5)
    text = comparison(a: one, b: two).to_s
    expect(text.lines.first).to eq(
      "b allocates 3.2 times as many bytes as a, makes 0.5 times as many objects as a, retains 2.0 KiB where a " \
      "retains none, and takes 2.0 times as long as a (but rounds of both overlap).\n"
    )
    expect(text).to match(/^2\.0 µs \(1\.0 µs to 3\.0 µs\)  4\.0 µs \(2\.0 µs to 6\.0 µs\)  time$/)
    expect(text).to end_with("The medians of 2 rounds, in brackets the least and the most.")
  end

  it "has a spread for each figure and ratios of medians, nil where the first has nothing" do
    both = comparison(a: side(retained_bytes: 0), b: side(wall_ns: [20, 40], gc_time_ns: [nil, 3]))
    expect(both[:b].wall_ns.to_h).to eq(median: 30.0, least: 20, most: 40)
    expect([both.ratio(:b, :wall_ns), both.ratio(:b, :retained_bytes), both[:b].gc_time_ns]).to eq([3.0, nil, nil])
    expect { both[:c] }.to raise_error(ArgumentError, /has no :c/)
  end
end
