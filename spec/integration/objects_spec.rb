# frozen_string_literal: true

require_relative "../spec_helper"

# `Memintro.start(objects: true)`: Ruby objects by the line that made them.
RSpec.describe "objects by line" do
  def objects(code, **options) = run_ruby(code: code, requires: %w[memintro json], **options).must_succeed.json

  # A program that leaks; the lines of the leak are marked.
  LEAKS = {
    "hashes in an array" => ["KEEP = []\n200_000.times { |i| KEEP << { a: i } } # leak", 200_000, "Hash"],
    "a growing cache of strings" =>
      ["CACHE = {}\n200_000.times do |i|\n  CACHE[i] = i.to_s # leak\nend", 200_000, "String"],
    "objects held by a closure" =>
      ["class Message; end\nHOLD = [Array.new(50_000) { Message.new }].map { |all| -> { all } } # leak", 50_000,
       "Message"]
  }.freeze

  LEAKS.each do |name, (code, count, type)|
    it "names the line of #{name} first of all lines, with each object" do
      line = code.lines.index { |text| text.include?("# leak") } + 1
      answer = objects(<<~RUBY)
        Memintro.start(objects: true)
        eval(#{code.inspect}, TOPLEVEL_BINDING, "leak.rb", 1)
        GC.start
        site = Memintro.top(5).find { |each| each.kind == :ruby }
        first = Memintro.top(1, by: :object_bytes).first
        puts JSON.generate(name: site.name, first: first.name, type: site.classes[#{type.inspect}], bytes: site.object_bytes,
                           size: GC::INTERNAL_CONSTANTS[:RVALUE_SIZE] || 40)
      RUBY
      expect(answer).to include(name: "leak.rb:#{line}", first: "leak.rb:#{line}")
      expect(answer[:type].first).to be_between(count, count + 20)
      expect(answer[:bytes]).to be >= count * answer[:size]
    end
  end

  # Elsewhere, functions of Ruby are called for each object. Then figures are as exact, and cost more.
  it "has the hook read new objects by itself, and marks as bits", if: RUBY_PLATFORM.start_with?("x86_64") do
    answer = objects(<<~RUBY)
      Memintro.start(objects: true)
      keep = []
      10.times do
        5_000.times { |i| keep << { i => "a" * (i % 300) }; [i].to_s }
        GC.start(full_mark: false)
      end
      puts JSON.generate(objects: Memintro::Native.reads_objects?, marks: Memintro::Native.reads_marks?)
    RUBY
    expect(answer).to eq(objects: true, marks: true)
  end

  # Ruby's own record of each object, made by the same events.
  TWIN = Subprocess.read_program("objects/twin.rb")

  def agree(rounds, compared, generations, way: "plain", **options)
    answer = objects(TWIN, env: { "ROUNDS" => rounds.to_s, "WAY" => way }, **options)
    expect(answer.values_at(:lines, :classes)).to eq(%w[[] []])
    # Its record takes memory, which now and then provokes a collection before ours is made.
    expect(answer[:generations]).to be < generations
    expect(answer[:compared]).to be > compared
    answer[:moved]
  end

  it "agrees with ObjectSpace.trace_object_allocations, object by object", deadline_seconds: 900 do
    agree(8_000, 104_000, 20, deadline_seconds: 600)
  end

  it "agrees with it while the collector runs at every allocation, and after it has moved objects",
     deadline_seconds: 1_500 do
    agree(10, 120, 10, way: "stress", deadline_seconds: 600)
    expect(agree(8_000, 32_000, 20, way: "compact", deadline_seconds: 600)).to be > 1_000
  end

  it "agrees with it on a million objects", :long, deadline_seconds: 1_800 do
    agree(80_000, 1_040_000, 40, deadline_seconds: 1_800)
  end

  # Objects that live and die at random, against all slots that are in use, by Ruby's own dump of its heap.
  DYING = Subprocess.read_program("objects/dying.rb")

  %w[plain traced ractor].each do |way|
    it "knows which objects live, at the end of each collection (#{way})", deadline_seconds: 600 do
      way = "plain" if way == "ractor" && RUBY_VERSION < "3.2"
      answer = objects(DYING, env: { "ROUNDS" => "200000", "WAY" => way }, deadline_seconds: 500)
      expect(answer).to include(wrong: 0, stale: 0, compared: be > 13_000)
      # With a tracer, it depends on whether a collection has begun in its handler.
      expect(answer[:marks]).to be(way == "plain") unless way == "traced"
      expect(answer[:ours]).to be_between(answer[:compared], answer[:compared] + 1_000)
      # Between the two readings some are made.
      expect(answer[:difference]).to be_between(-100, 200)
    end
  end

  it "survives GC.stress, and Ractors that make and free objects" do
    answer = objects(<<~'RUBY')
      Warning[:experimental] = false
      Memintro.start(objects: true)
      GC.stress = true
      few = Array.new(40) { Object.new }
      line = __LINE__ - 1
      30.times { Object.new }
      GC.stress = false
      stressed = [Memintro["-e:#{line}"], Memintro["-e:#{line + 2}"]].map { |site| site.live_objects }
      ractors = Memintro::RactorGuard.needed? ? 0 : 2
      others = Array.new(ractors) { Ractor.new { 10.times { Array.new(2_000) { "x" * 10 }; GC.start }; :done } }
      10.times { Array.new(2_000) { "y" * 10 }; Memintro.top(5, by: :live_objects) }
      done = others.map { |one| one.respond_to?(:value) ? one.value : one.take }
      GC.start
      kept = Memintro["-e:#{line}"].classes["Object"]
      puts JSON.generate(stressed: stressed, done: done, ractors: ractors, kept: kept.first, truth: few.size)
    RUBY
    # The array itself, call caches, and what the stack holds.
    expect(answer[:stressed][0]).to be_between(40, 60)
    expect(answer[:stressed][1]).to be < 10
    expect(answer).to include(done: ["done"] * answer[:ractors], kept: 40, truth: 40)
  end

  it "knows of objects that are made after Ractors were freed" do
    skip "this Ruby ends tracking of objects when a Ractor begins" if RUBY_VERSION < "3.2"

    answer = objects(read_program("objects/ractors.rb"))
    expect(answer[:counts]).to all(be_between(1_000, 1_020))
    expect(answer[:freed]).to be < 20
  end

  it "ends in words before a Ractor begins, on a Ruby that would crash then; a measurement refuses it" do
    result = run_ruby(code: <<~'RUBY', requires: %w[memintro json]).must_succeed
      Warning[:experimental] = false
      Memintro.start(objects: true)
      answers = Array.new(2) { |i| ractor = Ractor.new(i) { |n| Array.new(100) { Object.new }.size + n }; ractor.respond_to?(:value) ? ractor.value : ractor.take }
      tracked = [Memintro.tracking?, Memintro::Native.tracks_objects]
      sleep 0.01 until Ractor.count == 1
      refused = begin
        Memintro.measure { ractor = Ractor.new { 1 }; ractor.respond_to?(:value) ? ractor.value : ractor.take } && nil
      rescue Memintro::UnsupportedError => e
        e.message
      end
      without = Memintro.measure(objects: false) { Ractor.new { 1 }.then { |one| one.respond_to?(:value) ? one.value : one.take } }
      puts JSON.generate([Memintro::RactorGuard.needed?, answers, tracked, refused, without.value])
    RUBY
    guarded, answers, tracked, refused, without = result.json
    expect([answers, without]).to eq([[100, 101], 1])
    expect(tracked).to eq([true, !guarded])
    expect(refused.to_s).to match(guarded ? /crashes when a Ractor begins .* objects: false/ : /\A\z/)
    expect(result.stderr.scan("objects are no longer tracked").size).to eq(guarded ? 1 : 0)
  end

  it "follows objects that compaction moves, and forgets those that are freed" do
    answer = objects(read_program("objects/compaction.rb"))
    # The stack may hold a few.
    expect(answer[:moved][0]).to be_between(25_000, 25_003)
    expect(answer[:moved][1]).to be_between(answer[:live], answer[:live] + 3)
    expect(answer[:after]).to all(be < 20)
  end

  it "changes nothing for ObjectSpace.each_object, WeakRef and finalizers" do
    [false, true, :sampled].each do |objects|
      answer = objects("OBJECTS = #{objects.inspect}; " + read_program("objects/weak_and_finalized.rb"))
      # The stack may hold a few.
      expect(answer[:alive]).to be_between(250, 255)
      expect(answer).to include(kept: 250, each: answer[:alive], ended: 1_000 - answer[:alive])
      expect(answer[:ours]).to eq(answer[:alive]) if objects == true
    end
  end

  it "has none of its own lines that start it, though a start within untracked sees what comes after" do
    found = run_ruby(code: <<~RUBY).must_succeed.stdout.split("\n")
      Memintro.untracked { Memintro.start(objects: true) }
      KEPT = Array.new(100) { "x" * 1_000 }
      sites = Memintro.top(nil, by: :allocations)
      puts sites.map(&:name).grep(%r{memintro/(malloc/tracking|runtime/ractor_guard)\.rb}).size
      puts sites.find { |site| site.name == "-e:2" }.then { |site| [site.live_objects >= 101, site.live_blocks >= 101] }
    RUBY
    expect(found).to eq(%w[0 true true])
  end

  it "counts the same in forked children, and leaves out what memintro makes for itself" do
    answer = objects(read_program("objects/forked_children.rb"))
    expect(answer).to include(child: "1000 500", off: false)
    expect(answer[:parent]).to be_between(1_000, 1_010)
    expect(answer[:own]).to be < 10
  end

  it "ranks, marks and filters by age, and says so in reports that can be read back" do
    answer = objects(read_program("objects/ranks.rb"))
    expect(answer[:aged][0]).to be_between(3_000, 3_010)
    expect(answer[:aged][1].to_i).to be < 5
    expect(answer[:back][0]).to eq("-e:#{answer[:line]}")
    expect(answer[:back][1]).to be_between(3_000, 3_010)
    expect(answer[:text]).to match(/retained +objects +in slots +live/)
  end

  it "is in snapshots, their files, their diffs, and what a socket answers" do
    answer = objects(read_program("objects/snapshots.rb"))
    name = "-e:#{answer[:line]}"
    bytes = 20_000 * answer[:slot]
    answer[:changes].each do |retained, objects|
      expect([retained[0], objects[0]]).to eq([name, name])
      expect(objects[1]).to be_between(bytes, bytes + 1_000)
      expect(retained[1]).to be >= objects[1] + 160_000 # the array's own memory
      expect([retained[2], objects[2]]).to all(be_between(20_000, 20_010))
    end
    expect(answer[:told]).to include(name)
    expect(answer.values_at(:old, :vital)).to all(match([name, be_between(20_000, 20_010)]))
  end

  it "keeps to the least max_tracker_bytes, whole stacks of several threads included, and says what had no room" do
    answer = objects(<<~'RUBY')
      Memintro.start(objects: true, stack_depth: 64, max_tracker_bytes: 4 << 20)
      kept = []
      def deep(left, &work) = left.zero? ? work.call : deep(left - 1, &work)
      150_000.times { |i| deep(i % 40) { kept << ("x" * 100) << { a: i } } }
      # Each thread has a cache of stacks.
      20.times { Thread.new { deep(9) { kept << ("y" * 100) } }.tap { |thread| kept << thread } }
      kept.grep(Thread).each(&:join)
      puts JSON.generate(bytes: Memintro.totals.tracker_bytes, dropped: Memintro.totals.dropped)
    RUBY
    expect(answer[:bytes]).to be_between(2 << 20, 4 << 20)
    expect(answer[:dropped]).to be > 10_000
  end

  it "is switched on from outside: memintro run --objects, and MEMINTRO_OBJECTS" do
    code = "KEPT = Array.new(10_000) { Object.new }"
    [[%w[--objects], {}], [[], { "MEMINTRO_OBJECTS" => "1" }]].each do |flags, env|
      result = run_memintro("run", *flags, "--top", "50", "--", RbConfig.ruby, "-e", code, env: env)
      expect(result.stderr).to match(/by retained_bytes:.*10,0\d\d .* -e:1$/m)
    end
  end
end
