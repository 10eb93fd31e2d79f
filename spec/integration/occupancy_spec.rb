# frozen_string_literal: true

require_relative "../spec_helper"

RSpec.describe "how full the heap is", :vm do
  def answer_of(code)
    run_ruby(code: "#{GCStress::UNDER_STRESS}\n#{code}", requires: %w[json objspace memintro]).must_succeed.json
  end

  it "agrees with what Ruby counts" do
    result = answer_of(<<~RUBY)
      GC.stress = false
      counts = {}
      under_stress = stressed { Array.new(3) { Memintro.occupancy.live_slots } }
      2.times { Memintro.occupancy; GC.stat; ObjectSpace.count_objects(counts) }
      GC.start
      GC.disable
      occupancy = Memintro.occupancy
      ObjectSpace.count_objects(counts)
      pages = GC.stat[:heap_eden_pages] || (GC.stat[:heap_allocated_pages] - GC.stat[:heap_empty_pages])
      puts JSON.generate(occupancy: occupancy.to_h, pages: pages, under_stress: under_stress,
                         live: counts[:TOTAL] - counts[:FREE], all: counts[:TOTAL])
    RUBY
    occupancy = result[:occupancy]
    expect(result[:live] - occupancy[:live_slots]).to be_between(0, 100)
    expect(occupancy[:pages]).to eq(result[:pages])
    # Without stress, garbage is counted as well.
    expect(result[:under_stress]).to all(be > occupancy[:live_slots] / 2)
    expect(occupancy[:slots]).to eq(occupancy[:live_slots] + occupancy[:free_slots])
    expect(occupancy[:slots]).to be_between(occupancy[:live_slots], result[:all])
    sizes = occupancy[:pools].map { |pool| pool[:slot_size] }
    expect(sizes).to eq(sizes.sort.uniq)
    expect(sizes.first).to eq(40).or eq(48)
    %i[pages slots live_slots free_slots sparse_pages sparse_live_slots].each do |figure|
      expect(occupancy[:pools].sum { |pool| pool[figure] }).to eq(occupancy[figure]), figure.to_s
    end
  end

  # Other threads make objects, and collections are under way. A snapshot, which walks in steps, has those of its last
  # page: where no other thread runs, that is the same.
  it "counts the slots that GC.stat counts at that instant, in a snapshot as well" do
    result = answer_of(read_program("occupancy/counters.rb"))
    expect(result.size).to eq(33)
    expect(result.map { |live, counted| live - counted }).to eq([0] * 33)
  end

  # Pages on which one object of 16 stays, and pages on which one of 25 does: more than 5%, and less.
  it "calls a page sparse while less than a twentieth of its slots are taken" do
    result = answer_of(read_program("occupancy/sparse_pages.rb"))
    expect(result[:pages]).to be_between(100, 600)
    # But for the pages that are there already, and those that other objects have got to.
    expect(result[:on][:Below]).to be_between(result[:pages] * 0.8, result[:pages] + 2)
    expect(result[:on].fetch(:Above, 0)).to be < result[:pages] * 0.1
    expect(result[:sparse]).to be >= result[:on][:Below]
  end

  # One object of a thousand stays, on every page that the others leave behind.
  it "names what keeps pages that are nearly empty" do
    result = answer_of(<<~RUBY)
      GC.stress = false
      class Needle; end
      $needles = []
      GC.disable
      300.times { Array.new(999) { Object.new }; $needles << Needle.new }
      GC.enable
      4.times { GC.start }
      occupancy = Memintro.occupancy
      puts JSON.generate(sparse: occupancy.sparse_pages, live: occupancy.sparse_live_slots, slots: occupancy.slots,
                         holders: occupancy.holders.map(&:to_h), inspect: occupancy.inspect,
                         classes: [occupancy.pools.class, occupancy.holders.class])
    RUBY
    expect(result[:sparse]).to be > 100
    needle = result[:holders].find { |holder| holder[:name] == "Needle" }
    expect(needle[:pages]).to be_between(result[:sparse] / 2, result[:sparse])
    expect(needle[:count]).to be >= needle[:pages]
    expect(result[:holders].sum { |holder| holder[:count] }).to eq(result[:live])
    pages = result[:holders].map { |holder| holder[:pages] }
    expect(pages).to eq(pages.sort.reverse)
    expect(result[:inspect]).to match(/\A#<Memintro::Occupancy [\d,]+ pages?, .*pages? with under 5%, held by /)
    expect(result[:classes]).to eq(%w[Memintro::List Memintro::List])
  end
end
