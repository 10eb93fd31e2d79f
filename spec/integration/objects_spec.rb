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
  TWIN = <<~'RUBY'
    require "objspace"
    def slot(object) = Fiddle.dlwrap(object)
    require "fiddle"
    Point = Struct.new(:x, :y)
    Memintro.start(objects: true)
    ObjectSpace.trace_object_allocations_start
    kept = []
    rounds, way = Integer(ENV.fetch("ROUNDS")), ENV["WAY"]
    GC.stress = way == "stress"
    rounds.times do |i|
      kept << "embedded" << "#{i}" * 20
      kept << [i, i] << [i] * 50
      kept << { i => i } << Point.new(i, i)
      kept << (2**64 + i) << proc { i } << Object.new
      kept << kept.last.dup << (i..i + 1) << /a#{i % 7}/ << i.to_f.rationalize
      kept << 1e300 * i if i.even?
      GC.start if i == rounds / 2
    end
    GC.stress = false
    kept = kept.each_slice(3).map(&:first) if way == "compact"
    GC.start
    # Ruby forgets what has moved, so it is asked before.
    truth = kept.uniq(&:__id__).filter_map do |object|
      line = ObjectSpace.allocation_sourceline(object) or next
      [object, "#{ObjectSpace.allocation_sourcefile(object)}:#{line}", ObjectSpace.allocation_generation(object)]
    end
    before = kept.map { |object| slot(object) }
    GC.compact if way == "compact"
    moved = kept.zip(before).count { |object, address| slot(object) != address }
    GC.disable
    now = GC.count
    ours = Memintro::Native.tracked_objects.to_h { |slot, _, site, age| [slot, [site, age]] }
    names = Memintro::Native.sites.to_h { |row| [row[0], "#{row[2]}:#{row[3]}"] }
    lines, generations = [], 0
    types = Hash.new { |all, place| all[place] = Hash.new(0) }
    truth.each do |object, place, generation|
      types[place][object.class.name] += 1
      site, age = ours[slot(object)]
      lines << [object.class, place, names[site]] unless names[site] == place
      generations += 1 unless age == now - generation
    end
    # What is garbage and not freed yet counts, too.
    fewer = types.reject do |place, classes|
      found = Memintro[place].classes
      classes.all? { |name, count| found[name].to_a.first.to_i.between?(count, count * 1.01 + 10) } || way == "compact"
    end
    puts JSON.generate(compared: truth.size, moved: moved, lines: lines.first(3).inspect, generations: generations,
                       classes: fewer.first(3).inspect)
  RUBY

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
  DYING = <<~'RUBY'
    require "fiddle"
    require "objspace"
    def slot(object) = Fiddle.dlwrap(object)
    Memintro.start(objects: true)
    way = ENV["WAY"]
    ObjectSpace.trace_object_allocations_start if way == "traced"
    kept, lines = [], []
    random = Random.new(7)
    Integer(ENV["ROUNDS"]).times do |i|
      made, line = case i % 5
                   when 0 then [Object.new, __LINE__]
                   when 1 then [[i, i], __LINE__]
                   when 2 then [{ i => i }, __LINE__]
                   when 3 then ["#{i}" * 3, __LINE__]
                   else [1e300 * i, __LINE__]
                   end
      at = random.rand(20_000)
      kept[at], lines[at] = made, line
      GC.start(full_mark: false) if i % 20_000 == 7
      GC.start(immediate_sweep: false) if i % 45_000 == 9
      GC.compact if i % 90_000 == 11
      Ractor.new { 20_000.times { Object.new }; GC.start }.then { |one| one.respond_to?(:value) ? one.value : one.take } if i == 60_000 && way == "ractor"
    end
    # Collections that begin inside Ruby's own record of a new object are not told.
    (GC.stress = true; 20.times { Object.new }; GC.stress = false) if way == "traced"
    by_marks = Memintro::Native.object_ends_are_marks
    20_000.times { |at| kept[at] = lines[at] = nil if at % 3 == 1 }
    GC.start
    GC.disable
    counted = Memintro.top(nil).sum(&:live_objects)
    ours = Memintro::Native.tracked_objects.to_h { |slot, _, site,| [slot, site] }
    names = Memintro::Native.sites.to_h { |row| [row[0], row[3]] }
    in_use = ObjectSpace.dump_all(output: :string).scan(/"address":"0x(\h+)/).to_h { |(text)| [text.hex, true] }
    wrong = kept.each_index.count { |at| kept[at] && !kept[at].is_a?(Float) && names[ours[slot(kept[at])]] != lines[at] }
    puts JSON.generate(wrong: wrong, stale: ours.keys.count { |slot| !in_use[slot] }, compared: kept.compact.size, ours: ours.size,
                       marks: by_marks, difference: counted - ours.size)
  RUBY

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

    answer = objects(<<~'RUBY')
      Warning[:experimental] = false
      Memintro.start(objects: true)
      def run = Ractor.new { 1 }.then { |one| one.respond_to?(:value) ? one.value : one.take }
      def deep(calls) = calls.zero? ? 1 : deep(calls - 1)
      counts = 3.times.map do
        10.times { run }
        deep(200)
        GC.start
        kept = Array.new(1_000) { Object.new }
        line = __LINE__ - 1
        Memintro["-e:#{line}"].classes["Object"].first.tap { kept.clear }
      end
      freed = Array.new(1_000) { Object.new }
      line = __LINE__ - 1
      freed = nil
      deep(200)
      GC.start
      puts JSON.generate(counts: counts, freed: Memintro["-e:#{line}"].live_objects)
    RUBY
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
    answer = objects(<<~'RUBY')
      Memintro.start(objects: true)
      kept = Array.new(50_000) { |i| i.odd? ? Object.new : nil }
      mixed = Array.new(50_000) { |i| [Object.new, kept.size] }
      line = __LINE__ - 1
      mixed = mixed.each_slice(7).map(&:first)
      GC.start
      GC.compact
      GC.verify_compaction_references(toward: :empty, double_heap: true)
      counts = ->(at) { Memintro["-e:#{at}"].classes["Object"] }
      moved = [counts.call(line - 1).first, counts.call(line).first]
      live = mixed.flatten.grep(Object).count { |object| !object.is_a?(Integer) }
      # The stack may hold the arrays themselves.
      [mixed, kept].each(&:clear)
      GC.start
      after = [line - 1, line].map { |at| Memintro["-e:#{at}"].live_objects }
      puts JSON.generate(moved: moved, live: live, after: after)
    RUBY
    # The stack may hold a few.
    expect(answer[:moved][0]).to be_between(25_000, 25_003)
    expect(answer[:moved][1]).to be_between(answer[:live], answer[:live] + 3)
    expect(answer[:after]).to all(be < 20)
  end

  it "changes nothing for ObjectSpace.each_object, WeakRef and finalizers" do
    [false, true, :sampled].each do |objects|
      answer = objects(<<~RUBY)
        require "weakref"
        Kept = Class.new
        def at_end(ended, number) = proc { ended << number }
        Memintro.start(objects: #{objects.inspect})
        kept = Array.new(1_000) { Kept.new }
        line = __LINE__ - 1
        ended = []
        weak = kept.map { |object| WeakRef.new(object) }
        kept.each_with_index { |object, number| ObjectSpace.define_finalizer(object, at_end(ended, number)) }
        kept = kept.each_slice(4).map(&:first)
        3.times { GC.start }
        GC.compact
        alive = weak.count(&:weakref_alive?)
        each = ObjectSpace.each_object(Kept).map(&:object_id)
        ours = Memintro["-e:\#{line}"].classes["Kept"].to_a.first if Memintro::Native.tracks_objects
        puts JSON.generate(alive: alive, each: each.uniq.size, ended: ended.uniq.size, kept: kept.size, ours: ours)
      RUBY
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
    answer = objects(<<~'RUBY')
      Memintro.start(objects: true)
      kept = Array.new(1_000) { Object.new }
      line = __LINE__ - 1
      null = File.open(File::NULL, "w")
      own = lambda do |rounds|
        rounds.times { Memintro.top(50); Memintro.report(null) }
        GC.start
        Memintro.top(nil).select { |site| site.name.include?("lib/memintro") }.sum(&:live_objects)
      end
      few, many = own.call(5), own.call(50)
      reader, writer = IO.pipe
      pid = fork do
        kept.concat(Array.new(500) { Object.new })
        writer.write([Memintro["-e:#{line}"].classes["Object"].first,
                      Memintro["-e:#{__LINE__ - 2}"].classes["Object"].first].join(" "))
        exit!(0)
      end
      Process.wait(pid)
      writer.close
      Memintro.stop
      puts JSON.generate(own: many - few, child: reader.read, parent: Memintro["-e:#{line}"].live_objects,
                         off: Memintro::Native.tracks_objects)
    RUBY
    expect(answer).to include(child: "1000 500", off: false)
    expect(answer[:parent]).to be_between(1_000, 1_010)
    expect(answer[:own]).to be < 10
  end

  it "ranks, marks and filters by age, and says so in reports that can be read back" do
    answer = objects(<<~'RUBY')
      require "tempfile"
      require "stringio"
      Memintro.start(objects: true)
      line = __LINE__ + 1
      old = Array.new(3_000) { Object.new }
      GC.start
      young = Array.new(1_000) { Object.new }
      aged = Memintro.top(nil, older_than_gcs: 1).to_h { |site| [site.name, site.live_objects] }
      file = Tempfile.new
      Memintro.report(file, format: :json)
      file.flush
      back = Memintro::CallSites.of(Memintro::Native::Report.read(File.binread(file.path))).top(1, by: :live_objects).first
      text = StringIO.new
      Memintro.report(text)
      puts JSON.generate(aged: aged.values_at("-e:#{line}", "-e:#{line + 2}"), line: line, back: back.to_h.values_at(:name, :live_objects),
                         text: text.string.lines.grep(/call site$/).last)
    RUBY
    expect(answer[:aged][0]).to be_between(3_000, 3_010)
    expect(answer[:aged][1].to_i).to be < 5
    expect(answer[:back][0]).to eq("-e:#{answer[:line]}")
    expect(answer[:back][1]).to be_between(3_000, 3_010)
    expect(answer[:text]).to match(/retained +objects +in slots +live/)
  end

  it "is in snapshots, their files, their diffs, and what a socket answers" do
    answer = objects(<<~'RUBY')
      require "tmpdir"
      Dir.mktmpdir do |folder|
        Memintro.start(objects: true)
        line = __LINE__ + 3
        snapshots = [Memintro.snapshot]
        kept = []
        20_000.times { |i| kept << [i, i, i] }
        GC.start
        GC.start
        snapshots << Memintro.snapshot
        Memintro.listen
        require "memintro/control/directory"
        client = Memintro::Control::Directory.new.find($$.to_s).client
        old = client.ask_json("top", older_than_gcs: 1, n: 1, format: "json")["call_sites"].first
        vital = client.ask_json("vitals", top: 1)["sites"].first
        text = client.ask("snapshot")
        File.binwrite(File.join(folder, "asked.json"), text)
        paths = snapshots.each_with_index.map { |one, at| File.join(folder, "#{at}.json").tap { |path| one.save(path) } }
        pairs = [snapshots, paths.map { |path| Memintro::Snapshot.load(path) },
                 [snapshots[0], Memintro::Snapshot.load(File.join(folder, "asked.json"))]]
        changes = pairs.map do |earlier, later|
          diff = later - earlier
          [diff.retained.first, diff.object_sites.first].map { |change| [change.name, change.growth, change.count_growth] }
        end
        puts JSON.generate(line: line, slot: Memintro::Native.tracked_objects.first[1], changes: changes,
                           told: (snapshots[1] - snapshots[0]).to_s.lines.grep(/^Tracked objects/).first,
                           old: old.values_at("name", "live_objects"), vital: vital.values_at("name", "live_objects"))
      end
    RUBY
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
