# frozen_string_literal: true

require_relative "../spec_helper"

# Up to Ruby 3.2 the contents of young objects lie in a heap of Ruby's own, and are moved into malloc after a
# collection, while whatever line runs next runs.
RSpec.describe "young objects that outlive a collection" do
  CODE = Subprocess.read_program("transient_heap/growing.rb")

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

  it "are explained below a report in which they are a tenth or more, and only there" do
    leak = "kept = []; 20_000.times { |i| kept << { a: i } }; GC.start; 100_000.times { |i| i + 1 }"
    texts = [["", leak], ["", "kept = 'x' * 9_000_000"], ["objects: true", "#{leak}; kept << 'x' * 9_000_000"]]
    texts.map! do |objects, code|
      run_ruby(code: "Memintro.start(#{objects}); #{code}; Memintro.report(top: 3)").must_succeed.stdout
    end
    note = /^note: \(gc\) has the contents of arrays, hashes, structs and objects that outlived a collection, if no/
    expect(texts.map { |text| text.match?(note) }).to eq([RUBY_VERSION < "3.3", false, false])
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

# Each kind is made by a line of its own, and the contents of each object of it lie in a block of one size.
RSpec.describe "young objects that outlive a collection while objects are tracked" do
  before { skip "no transient heap" if RUBY_VERSION >= "3.3" }

  MOVED_LEAK = Subprocess.read_program("transient_heap/moved_leak.rb")
  MOVED_SIZES = [128, 320, 56, 72].freeze
  # Objects that memintro makes for readings are not tracked.
  MOVED_LEFT = 200

  def figures(code, **options)
    run_ruby(code: MOVED_LEAK + code, requires: %w[memintro json], **options).must_succeed.json
  end

  # Few others are of the same size.
  def be_some(count = 10_000, more: 20) = be_between(count, count + more)

  # The list of all objects, and records of pages that Ruby's heap grew by.
  def be_so_many_bytes(count = 10_000)
    match(MOVED_SIZES.map { |size| be_between(count * size, count * (size + 8) + 60_000) })
  end

  MOVED_AGREE = <<~'RUBY'
    Memintro.start(objects: true, **JSON.parse(ENV.fetch("OPTIONS", "{}"), symbolize_names: true))
    leak(10_000)
    collect
    found = { contents: contents, left: left, exact: exact?, growth: growth }
    names = SIZES.keys.map { |line| "-e:#{line}" }
    top = Memintro.top(10_000).to_h { |site| [site.name, [site.live_blocks, site.live_bytes]] }
    rows = Memintro.account.rows.flat_map { |row| row.details[:call_sites].to_a }.group_by { |site| site[:name] }
    account = rows.transform_values { |sites| [sites.sum { |site| site[:live_blocks] }, sites.sum { |site| site[:live_bytes] }] }
    leaks = Memintro.leaks.groups.group_by(&:site).transform_values { |groups| [groups.sum(&:count), groups.sum(&:bytes)] }
    puts JSON.generate(agree: names.map { |name| [top, account, leaks].map { |figures| figures[name] } }, **found)
  RUBY

  {
    "in-band records" => {},
    "the table" => { env: { "MEMINTRO_RECORDS" => "table" } },
    "whole stacks" => { env: { "OPTIONS" => '{"stack_depth":8}' } },
    "sites beyond the first 32,768, which some records have no room for" => { before: <<~'RUBY' }
      Memintro.start
      eval((1..34_000).map { |i| "KEPT << String.new(capacity: 100)\n" }.join, TOPLEVEL_BINDING, "many.rb", 1)
    RUBY
  }.each do |name, options|
    it "are their line's, as top, account and leaks say alike, with #{name}", :aggregate_failures do
      options = options.dup
      found = figures("#{options.delete(:before)}#{MOVED_AGREE}", **options)
      expect(found[:contents]).to all be_some
      expect(found[:left]).to be < MOVED_LEFT
      expect(found[:exact]).to be true
      expect(found[:growth]).to be_so_many_bytes
      found[:agree].each do |top, account, leaks|
        near = top.zip([3, 512]).map { |all, more| be_within(more).of(all) }
        expect([account, leaks]).to all match(near)
      end
    end
  end

  it "are their line's when Ruby was preloaded, and in a forked child", :aggregate_failures do
    found = figures(<<~'RUBY', env: preloaded_env)
      Memintro.start(objects: true)
      leak(10_000)
      collect
      reader, writer = IO.pipe
      pid = fork do
        leak(10_000)
        collect
        writer.write(JSON.generate(contents: contents, left: left, exact: exact?))
        exit!(0)
      end
      writer.close
      puts JSON.generate(child: JSON.parse(reader.read), contents: contents, left: left, exact: exact?, ended: Process.wait2(pid).last.success?)
    RUBY
    expect(found[:child]).to include(contents: all(be_some(20_000)), left: be < MOVED_LEFT, exact: true)
    expect(found).to include(contents: all(be_some), left: be < MOVED_LEFT, exact: true, ended: true)
  end

  it "grow at their line from mark to mark and from snapshot to snapshot", :aggregate_failures do
    found = figures(<<~'RUBY')
      Memintro.start(objects: true)
      leak(5_000)
      collect
      before = Memintro.snapshot
      Memintro.mark
      first = growth
      leak(10_000)
      collect
      diff = (Memintro.snapshot - before).call_sites.to_h { |change| [change.name, change.growth] }
      second = growth
      Memintro.mark
      puts JSON.generate(first: first, second: second, third: growth, contents: contents, diff: SIZES.keys.map { |line| diff["-e:#{line}"] })
    RUBY
    expect(found[:first]).to all be_between(0, 2_000)
    expect(found[:second]).to be_so_many_bytes
    expect(found[:third]).to eq([0] * 4)
    expect(found[:contents]).to all be_between(15_000, 15_020)
    expect(found[:diff]).to be_so_many_bytes
  end

  it "are resized and freed from their line, with their age", :aggregate_failures do
    found = figures(<<~'RUBY')
      Memintro.start(objects: true)
      leak(10_000)
      collect
      had = contents
      old = SIZES.keys.map { |line| Memintro.top(100, older_than_gcs: 2).find { |site| site.name == "-e:#{line}" }.live_blocks }
      # Another line resizes them.
      KEPT[1].each { |array| array.concat(array) }; grown = __LINE__
      collect
      moved = [contents, site(grown).live_blocks]
      KEPT.clear
      collect
      sites = (SIZES.keys + [grown]).map { |line| site(line) }
      puts JSON.generate(had: had, old: old, moved: moved, contents: contents, left: left, exact: exact?,
                         frees: sites.map(&:frees), live: sites.map(&:live_bytes), lifespans: sites.map(&:max_lifespan))
    RUBY
    expect(found[:had]).to all be_some
    expect(found[:old]).to all be_some(more: 200)
    expect(found[:moved]).to match([[be_some, be < 20, be_some, be_some], be_some(more: 200)])
    expect(found[:frees]).to all be >= 10_000
    expect(found[:live]).to all be < 60_000
    expect(found[:lifespans]).to all be >= 3
    expect(found).to include(contents: all(be < 20), left: be < MOVED_LEFT, exact: true)
  end

  it "are their line's after a reset, after a stop, and where only their class is tracked", :aggregate_failures do
    found = figures(<<~'RUBY')
      Memintro.start(objects: %w[Hash Array])
      leak(10_000)
      collect
      Memintro::Native.reset
      reset = [exact?, SIZES.keys.map { |line| site(line)&.live_bytes.to_i }]
      leak(10_000)
      collect
      chosen = [contents, left]
      Memintro.stop
      Memintro.start(objects: true)
      leak(10_000)
      collect
      Memintro.stop
      puts JSON.generate(reset: reset, chosen: chosen, stopped: SIZES.keys.map { |line| site(line).live_bytes }, exact: exact?)
    RUBY
    expect(found[:reset]).to match([true, [be_within(100).of(0)] * 4])
    all, none = [be_some(20_000), be < 20]
    expect(found[:chosen]).to match([[all, all, none, none], be_some(40_000, more: MOVED_LEFT)])
    expect(found[:stopped]).to be_so_many_bytes
    expect(found[:exact]).to be true
  end

  it "are their line's by estimate where malloc is sampled" do
    found = figures(<<~'RUBY')
      Memintro.start(mode: :sampled, sample_bytes: 1024, objects: true)
      GC.start
      Memintro.mark
      leak(10_000)
      collect
      puts JSON.generate(SIZES.keys.map { |line| [site(line).growth, site(line).growth_standard_error] })
    RUBY
    expected = MOVED_SIZES.map { |size| 10_000 * (size + 8) }
    found.zip(expected) { |(bytes, error), all| expect(bytes).to be_within(5 * error + 60_000).of(all) }
  end
end
