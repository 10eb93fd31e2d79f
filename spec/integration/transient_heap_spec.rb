# frozen_string_literal: true

require_relative "../spec_helper"

# Up to Ruby 3.2 the contents of young objects lie in a heap of Ruby's own, and are moved into malloc after a
# collection, while whatever line runs next runs.
RSpec.describe "young objects that outlive a collection" do
  CODE = <<~'RUBY'
    Memintro.start
    GC.disable
    row = Struct.new(:a, :b, :c, :d)
    user = Class.new { def initialize = @a = @b = @c = @d = @e = 1 }
    kept = []
    20_000.times { |i| kept << [i, i, i, i, i] }
    10_000.times { |i| kept << { a: i, b: i } }
    5_000.times { |i| kept << row.new(i, i, i, i) }
    5_000.times { kept << user.new }
    Memintro.mark
    live = ->(name) { Memintro[name]&.live_blocks.to_i }
    before = live["(gc)"]
    GC.enable
    GC.start
    x = 0
    100_000.times { x += 1 }
    puts JSON.generate(moved: live["(gc)"] - before, next: [15, 16].map { |line| live["-e:#{line}"] }, start: live["-e:14"],
                       own: [6, 7, 8, 9].map { |line| live["-e:#{line}"] })
  RUBY

  def figures(code: CODE, **options)
    run_ruby(code: code, requires: %w[memintro json], **options).must_succeed.json
  end

  # So many are moved: what is in a slot or of one element lies in the slot itself. Beside them the collector allocates
  # a few blocks of its own, and a line the records of pages that the heap grew by.
  it "are put down to the collector, to the last block, and not to the line that runs next", :aggregate_failures do
    skip "no transient heap" if RUBY_VERSION >= "3.3"

    all = Array.new(3) { figures }
    all << figures(env: preloaded_env)
    all.each do |found|
      expect(found[:moved]).to be_between(40_000, 40_200)
      expect(found[:next]).to eq([0, 0])
      expect(found[:own]).to all(be < 80)
    end
    # It varied by 18,000 when a line was charged.
    expect(all.first(3).map { |found| found[:moved] }.minmax.reduce(:-).abs).to be <= 10
  end

  it "are said to be the collector's below a report of which they are a tenth and more, and only there" do
    leak = "kept = []; 20_000.times { |i| kept << { a: i } }; GC.start; 100_000.times { |i| i + 1 }"
    texts = [leak, "kept = 'x' * 9_000_000"].map do |code|
      run_ruby(code: "Memintro.start; #{code}; Memintro.report(top: 3)").must_succeed.stdout
    end
    note = /^note: \(gc\) has the contents of arrays, hashes, structs and objects that outlived a collection/
    expect(texts.map { |text| text.match?(note) }).to eq([RUBY_VERSION < "3.3", false])
  end

  it "are their own line's where Ruby has no such heap" do
    skip "there is one" if RUBY_VERSION < "3.3"

    # There, five elements lie in the slot itself.
    found = figures(code: CODE.sub("[i, i, i, i, i]", "[i] * 100"))
    expect(found[:own]).to match([be_between(20_000, 20_080), *([be_between(0, 80)] * 3)])
    expect(found[:next]).to eq([0, 0])
  end

  it "do not take with them what other postponed jobs allocate: a finalizer's line stays its own" do
    found = run_ruby(code: <<~'RUBY', requires: %w[memintro json fiddle]).must_succeed.json
      Memintro.start
      def born = 100.times { ObjectSpace.define_finalizer(Object.new, ->(_) { $kept << Fiddle.malloc(50_001) }) }
      $kept = []
      young = Array.new(1_000) { |i| [i, i, i, i] }
      born
      GC.start
      100_000.times { |i| i + 1 }
      puts JSON.generate(blocks: Memintro["-e:2"].each_block.count { |size, *| size == 50_001 }, ran: $kept.size)
    RUBY
    expect(found[:ran]).to be > 90
    expect(found[:blocks]).to eq(found[:ran])
  end
end
