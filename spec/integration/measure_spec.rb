# frozen_string_literal: true

require "spec_helper"

# Each example is a process of its own, in which nothing else allocates.
RSpec.describe "Memintro.measure" do
  one_ruby requires: %w[memintro fiddle json]

  # Blocks of malloc without any object: Fiddle.malloc returns small Integers.
  def measured(code, way: :live, **options)
    setup = read_program("measure/setup.rb")
    program = setup + code
    forks = way == :live && options.empty?
    (forks ? run_forked(program) : run_ruby(code: program, way: way, **options)).must_succeed.json
  end

  def run_ruby(...) = Subprocess.run_ruby(...)

  %i[live preloaded].each do |way|
    it "has malloc's figures of the thread to the byte, #{way}" do
      figures = measured(<<~RUBY, way: way)
        m = Memintro.measure { blocks(1_000, 123, slots); free(400, slots) }
        puts JSON.generate(malloc: malloc(m), process: malloc(m, Memintro::Measurement::PROCESS.first(6)),
                           tracking: m.tracking, on: Memintro.tracking?, top: m.top_retained.map(&:to_h),
                           dropped: m.notes)
      RUBY
      expected = [1_000, 123_000, 400, 49_200, 600, 73_800]
      expect(figures).to include(malloc: expected, process: expected, dropped: [],
                                 tracking: way == :live ? "started" : "was_on", on: way == :preloaded)
      expect(figures[:top]).to match [{ name: a_string_matching(/\A-e:6\z/), kind: "ruby", allocations: 1_000,
                                        allocated_bytes: 123_000, retained_blocks: 600, retained_bytes: 73_800 }]
    end
  end

  it "keeps two threads at once apart to the byte, though one frees the other's blocks and gets their addresses" do
    # With one arena for all, a thread gets the addresses that it has freed, also those of other threads' blocks.
    figures = measured(<<~RUBY, env: { "MALLOC_ARENA_MAX" => "1" })
      mine, theirs, step = Array.new(1_000), Array.new(1_000), 0
      is_one, is_two, is_three = [1, 2, 3].map { |wanted| proc { step == wanted } }
      here = proc { blocks(1_000, 100, mine); step = 1; wait_until(&is_two) }
      there = proc { wait_until(&is_one); free(1_000, mine); blocks(1_000, 100, theirs); step = 2; wait_until(&is_three) }
      meeting = proc do
        step = 0
        other = Thread.new { Memintro.measure(&there) }
        m = Memintro.measure(&here)
        step = 3
        [m, other.value]
      end
      meeting.call
      m, n = meeting.call
      same = (mine & theirs).size
      puts JSON.generate(one: malloc(m), other: malloc(n), same: same, after: Memintro.mode)
    RUBY
    expect(figures[:same]).to be > 100
    expect(figures).to include(one: [1_000, 100_000, 0, 0, 0, 0], after: "off",
                               other: [1_000, 100_000, 1_000, 100_000, 1_000, 100_000])
  end

  it "keeps threads without Ruby's lock apart: each thread's blocks and those of the process" do
    figures = measured(<<~RUBY)
      results = nil
      all = Memintro.measure do
        threads = Array.new(4) do |i|
          own = Array.new(1_000)
          Thread.new { Array.new(20) { Memintro.measure(gc: false) { blocks(100, 1_000 + i, own); free(50, own) } } }
        end
        results = threads.map(&:value)
      end
      puts JSON.generate(each: results.map { |list| list.map { |m| malloc(m) }.uniq },
                         process: all.process_allocated_bytes, off: Memintro.mode)
    RUBY
    expected = (1_000..1_003).map { |size| [[100, 100 * size, 50, 50 * size, 50, 50 * size]] }
    expect(figures).to include(each: expected, off: "off")
    expect(figures[:process]).to be >= 20 * 100 * (1_000..1_003).sum
  end

  it "adds up within itself" do
    figures = measured(<<~RUBY)
      inner = again = nil
      rest = Array.new(100)
      innermost = proc { free(5, rest) }
      inside = proc { blocks(20, 1_000, rest); again = Memintro.measure(&innermost) }
      work = proc { blocks(10, 100, slots); inner = Memintro.measure(objects: false, &inside); free(1, slots) }
      Memintro.measure(&work)
      outer = Memintro.measure(&work)
      # Measuring's own allocations and objects are not counted.
      puts JSON.generate([outer, inner, again].map { |m| malloc(m) } <<
                         [outer.top_allocated.map(&:allocated_bytes), outer.objects_allocated, outer.process_objects_allocated])
    RUBY
    expect(figures).to eq [[30, 21_000, 6, 5_100, 24, 15_900], [20, 20_000, 5, 5_000, 15, 15_000],
                           [0, 0, 5, 5_000, 0, 0], [[21_000], 0, 0]]
  end

  it "lets no exception for its thread get lost, while it collects or asks Ruby" do
    said = run_ruby(code: read_program("measure/interrupted.rb"), requires: %w[memintro timeout]).must_succeed.stdout
    expect(said).to eq("0\nended\n")
  end

  it "is filled in when the block raises, breaks or throws, and leaves nothing on" do
    figures = measured(<<~RUBY)
      seen = []
      begin
        Memintro.measure { |m| seen << m; blocks(3, 77, slots); raise IOError, "no" }
      rescue IOError => e
        message = e.message
      end
      Memintro.measure { |m| seen << m; blocks(2, 55, slots); break }
      catch(:out) { Memintro.measure { |m| seen << m; throw :out } }
      thread = Thread.new { Memintro.measure { |m| seen << m; sleep } }
      wait_until { seen.size == 4 }
      thread.kill.join
      sites = seen.map { |m| m.top_allocated.select { |site| site.name == "-e:6" }.sum(&:allocated_bytes) }
      puts JSON.generate(message: message, sites: sites, ended: seen.map(&:ended?), values: seen.map(&:value),
                         mode: Memintro.mode, events: Array.new(3) { Memintro.gc_delta { 10.times { Object.new } }.objects_allocated }.last)
    RUBY
    expect(figures).to include(message: "no", sites: [231, 110, 0, 0], ended: [true] * 4, values: [nil] * 4,
                               mode: "off", events: 10)
  end

  it "switches from sampled to full and back, and leaves starts and stops of the program alone" do
    figures = measured(<<~RUBY)
      Memintro.start(mode: :sampled, sample_bytes: 4_096)
      m = Memintro.measure { blocks(100, 100, slots) }
      was = [m.tracking, Memintro.mode, Memintro::Native.sample_bytes, malloc(m)]
      Memintro.stop
      started = Memintro.measure { Memintro.start }
      kept = Memintro.mode
      stopped = Memintro.measure { Memintro.stop }
      gone = Memintro.mode
      cleared = Memintro.measure { Memintro.clear }
      switched = Memintro.measure { Memintro.start(mode: :sampled) }
      last = Memintro.mode
      Memintro.stop
      within = Memintro.untracked { Memintro.measure { blocks(1, 100, slots) } }
      puts JSON.generate(was: was, kept: kept, gone: gone, last: last, started: started.allocated_bytes.class,
                         missing: [stopped, cleared, switched, within].map { |one| [one.allocated_bytes, one.notes] })
    RUBY
    expect(figures).to include(was: ["switched", "sampled", 4_096, [100, 10_000, 0, 0, 100, 10_000]], kept: "full",
                               gone: "off", last: "sampled", started: "Integer")
    expect(figures[:missing].map(&:first)).to eq [nil] * 4
    expect(figures[:missing].flat_map(&:last)).to match [/stopped or cleared/, /stopped or cleared/, /mode of tracking/,
                                                         /inside of Memintro.untracked/]
  end

  it "goes on in a forked child, where other threads' measurements are over" do
    figures = measured(read_program("measure/forked_child.rb"))
    expect(figures[:child].first).to eq(inner: [7, 490, 0, 0, 7, 490], mode: "full")
    expect(figures[:child].last).to eq "off"
    expect(figures).to include(retained: 1_000, mode: "off")
  end

  it "sees a child of a thread that measures nothing go back to what was before" do
    figures = measured(<<~RUBY)
      ready = done = false
      other = Thread.new { Memintro.measure { ready = true; sleep 0.001 until done } }
      wait_until { ready }
      reader, writer = IO.pipe
      Process.wait(fork { writer.write(Memintro.mode.to_s); exit! })
      writer.close
      done = true
      other.join
      puts JSON.generate(child: reader.read, mode: Memintro.mode)
    RUBY
    expect(figures).to eq(child: "off", mode: "off")
  end

  it "refuses other Ractors in words, and survives a failed realloc" do
    figures = measured(<<~RUBY, flags: ["-W0"])
      inside = Ractor.new { Memintro.measure {} rescue [$!.class.name, $!.message] }.then { |one| one.respond_to?(:value) ? one.value : one.take }
      ractor = Ractor.new { Ractor.receive }
      beside = begin
        Memintro.measure {}
      rescue Memintro::RactorError => e
        e.message
      end
      ractor.send(1)
      ractor.then { |one| one.respond_to?(:value) ? one.value : one.take }
      wait_until { Ractor.count == 1 }
      realloc = Fiddle::Function.new(Fiddle.dlopen(nil)["realloc"], [Fiddle::TYPE_VOIDP, Fiddle::TYPE_SIZE_T],
                                     Fiddle::TYPE_VOIDP)
      # libffi's own call is not through a slot that was patched, so the hook's own symbol is asked for where it can be.
      m = Memintro.measure { slots[0] = Fiddle.malloc(1_000); realloc.call(slots[0], (1 << 62)) }
      puts JSON.generate(inside: inside, beside: beside, retained: m.top_retained.sum(&:retained_bytes) >= 1_000)
    RUBY
    expect(figures[:inside]).to match ["Memintro::RactorError", /works only in the main Ractor/]
    expect(figures[:beside]).to match(/\d Ractors are alive, and memintro can measure only while there is one/)
    expect(figures[:retained]).to be true
  end

  it "counts objects as GC.stat does, and keeps 200 of 1,000 strings, also when they move" do
    figures = measured(read_program("measure/objects.rb"))
    expect(figures).to include(made: figures[:truth], waste: figures[:truth], notes: [])
    # A string that a register still has in hand may be one more, with its text and the shared root that "x" has.
    expect(figures[:kept]).to be_between(200, 203)
    expect(figures[:moved]).to be_between(200, 210)
    expect(figures[:process]).to eq [figures[:made], figures[:kept]]
    expect(figures[:bytes]).to be_between(200 * 1_001, 202 * 1_001)
  end

  it "measures beside tracked objects, whichever of both begins or ends first" do
    figures = measured(read_program("measure/nested.rb"))
    figures[:answers].each do |name, made, kept, all, notes|
      rounds = name.match?(/first|second/) ? 2 : 1
      expect(made).to be_between(1_000 * rounds, 1_000 * rounds + 120), "#{name}: #{made}"
      expect(kept).to be_between(300 * (name.include?("second") ? 2 : 1), 300 * rounds + 60), name
      expect([all, notes]).to eq([made, []]), name
    end
    expect(figures[:off]).to be false
    # The stack may hold one that is not kept.
    [300, 600, 300, 600].zip(figures[:counts]) { |kept, count| expect(count).to be_between(kept, kept + 2) }
  end

  it "has the collections, their time and the times of the block" do
    figures = measured(<<~RUBY)
      m = Memintro.measure { 3.times { GC.start }; 2.times { GC.start(full_mark: false) }; sleep 0.05 }
      puts JSON.generate(m.to_h)
    RUBY
    expect(figures).to include(minor_gc_count: 2, major_gc_count: 3)
    expect(figures[:gc_time_ns]).to be_between(100_000, figures[:wall_ns])
    expect(figures[:wall_ns]).to be >= 50_000_000
    expect(figures[:cpu_ns]).to be < figures[:wall_ns] - 40_000_000
  end

  it "agrees with ObjectSpace.trace_object_allocations on which objects are retained" do
    figures = measured(<<~RUBY)
      require "objspace"
      Item = Class.new { def initialize(a) = @a = a }
      keep = []
      work = proc { 500.times { |i| one = Item.new(i); keep << one if i < 100 }; nil }
      2.times { Memintro.measure(&work); keep.clear }
      m = Memintro.measure(&work)
      keep.clear
      GC.start
      truth = nil
      ObjectSpace.trace_object_allocations do
        work.call
        GC.start
        truth = ObjectSpace.each_object(Item).count { |item| ObjectSpace.allocation_sourceline(item) }
      end
      puts JSON.generate(made: m.objects_allocated, kept: m.objects_retained, truth: truth)
    RUBY
    expect(figures[:made]).to be_between(500, 505)
    expect(figures[:truth]).to be_between(100, 102)
    expect(figures[:kept] - figures[:truth]).to be_between(-1, 3)
  end

  it "measures time and collections alone while memintro is disabled" do
    code = "m = Memintro.measure { 'x' * 1000 }; puts JSON.generate(m.to_h.merge(mode: Memintro.mode))"
    figures = run_ruby(code: "require 'json'; #{code}", env: { "MEMINTRO_DISABLE" => "1" }).must_succeed.json
    expect(figures).to include(allocated_bytes: nil, objects_allocated: nil, mode: "off", tracking: nil,
                               notes: ["MEMINTRO_DISABLE=1 is set, so neither malloc nor objects were followed"])
    expect(figures[:wall_ns]).to be > 0
  end

  it "compares two pieces of code side by side" do
    figures = measured(<<~RUBY)
      runs = Hash.new(0)
      one = -> { runs[:one] += 1; blocks(10, 100, slots); free(10, slots) }
      two = -> { runs[:two] += 1; blocks(32, 100, slots); free(32, slots); sleep 0.01 }
      comparison = Memintro.compare(rounds: 4, one: one, two: two)
      puts comparison
      puts JSON.generate(runs: runs, figures: comparison.to_h, ratio: comparison.ratio(:two, :allocated_bytes),
                         text: comparison.to_s, mode: Memintro.mode, again: JSON.parse(comparison.to_json))
    RUBY
    sides = figures[:figures][:sides]
    expect(figures).to include(runs: { one: 10, two: 10 }, ratio: 3.2, mode: "off", again: figures[:figures])
    expect(sides[:one][:allocated_bytes]).to eq(median: 1_000.0, least: 1_000, most: 1_000)
    expect(sides[:two][:retained_bytes]).to eq(median: 0.0, least: 0, most: 0)
    expect(sides[:two][:wall_ns][:least]).to be >= 10_000_000
    expect(figures[:text]).to match(/\Atwo allocates 3.2 times as many bytes as one, .*takes \d+\.\d times as long/)
  end
end
