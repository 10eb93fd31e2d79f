# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../../lib/memintro"
require "stringio"
require "tmpdir"

RSpec.describe Memintro::Diff do
  let(:earlier) do
    snapshot(0, classes: { "String" => [1_000, 40_000], "Gone" => [5, 200], "Same" => [7, 280] },
                iseqs: { "/app/a.rb" => [10, 5_000] }, types: { "T_STRING" => [1_000, nil] },
                sites: { "/app/a.rb:1" => [1_000, 10], "/app/b.rb:2" => [500, 5] })
  end
  let(:later) do
    snapshot(90, rss: 170 * 2**20, gc: { count: 14, time: 180, heap_live_slots: 39_000 },
                 classes: { "String" => [31_000, 1_240_000], "New" => [3, 120], "Same" => [7, 280] },
                 iseqs: { "/app/a.rb" => [10, 5_000], "/app/big.rb" => [10_000, 73_000_000] },
                 types: { "T_STRING" => [31_000, nil] },
                 sites: { "/app/a.rb:1" => [201_000, 2_010], "/app/c.rb:3" => [300, 3] })
  end
  let(:diff) { later - earlier }

  it "lists what changed, greatest growth first" do
    expect(diff.classes.map { |change| [change.name, change.growth, change.count_growth] })
      .to eq([["String", 1_200_000, 30_000], ["New", 120, 3], ["Gone", -200, -5]])
    expect(diff.iseqs.map(&:to_h)).to eq([{ name: "/app/big.rb", unit: :bytes, before: 0, after: 73_000_000,
                                            growth: 73_000_000, count_before: 0, count_after: 10_000,
                                            count_growth: 10_000, at_least: false }])
    expect(diff.types.map(&:growth)).to eq([30_000])
    expect(diff.call_sites.map { |change| [change.name, change.growth] })
      .to eq([["/app/a.rb:1", 200_000], ["/app/c.rb:3", 300], ["/app/b.rb:2", -500]])
    expect(diff.memory.map { |change| [change.name, change.growth] }).to eq([["rss_bytes", 120 * 2**20]])
    expect(diff.gc.map { |change| [change.name, change.unit, change.growth] })
      .to eq([["time", :ms, 60], ["count", :count, 4], ["heap_live_slots", :count, -1_000]])
    expect(diff.internals).to be_nil
    expect(diff.seconds).to eq(90.0)
  end

  it "answers by name all that to_h has, and each list" do
    expect(diff[:classes]).to equal(diff.classes)
    expect([diff["seconds"], diff[:same_process], diff[:earlier]]).to eq([90.0, true, earlier])
    expect(diff.to_h.keys - described_class::ATTRIBUTES).to eq([])
    expect(described_class::ATTRIBUTES.reject { |name| diff.respond_to?(name) }).to eq([])
    expect { diff[:rss] }.to raise_error(ArgumentError, /Memintro::Diff has no :rss; it has seconds, .*classes/)
    expect(Memintro::Trend.new([earlier, later, later])[:confidence]).to eq(0.99)
  end

  it "turns round" do
    back = earlier - later
    expect(back.classes.map(&:growth)).to eq([200, -120, -1_200_000])
    expect(back.notes).to eq(["The snapshot given as the later one is older: growth is computed backwards."])
    expect(back.to_s.lines.first).to include("what changed in 90.0 s, backwards, pid ")
    expect(diff.to_s.lines.first).to include("what changed in 90.0 s, pid ")
  end

  it "says at least how much a site grew that the earlier list does not reach down to" do
    first = snapshot(sites: { "/a.rb:1" => [900, 9], "/b.rb:2" => [400, 4] }, left_out: 10)
    second = snapshot(1, sites: { "/a.rb:1" => [950, 9], "/new.rb:3" => [1_400, 2], "/low.rb:4" => [390, 1] },
                         left_out: 9)
    changes = (second - first).call_sites.to_h { |change| [change.name, [change.growth, change.at_least]] }
    expect(changes).to eq("/new.rb:3" => [1_000, true], "/a.rb:1" => [50, false], "/b.rb:2" => [-10, true])
  end

  it "sums up tracked objects of lists that were cut, without a count that is not known" do
    first = snapshot(sites: { "/a.rb:1" => [9_000, 9, 9_000, 90], "/b.rb:2" => [0, 0, 4_000, 40] }, left_out: 10)
    second = snapshot(1, sites: { "/new.rb:3" => [0, 0, 140_000, 20], "/a.rb:1" => [9_000, 9, 9_400, 94] },
                         left_out: 10)
    kind = (second - first).kinds.find { |change| change.name == "tracked objects" }
    # The new line had at most 4,000 bytes before, and b.rb may have what it had.
    expect(kind.to_h).to include(before: 13_000, after: 149_400, growth: 136_400, at_least: true)
    expect([kind.count_growth, kind.count_after]).to eq([nil, nil])
    expect((second - first).to_s).to include("Tracked objects at least +133.2 KiB, nearly all at /new.rb:3")
  end

  it "compares equal names in any encodings" do
    first = snapshot(classes: { "é".b => [1, 40] })
    second = snapshot(classes: { "é" => [3, 120] })
    expect((second - first).classes.map { |change| [change.name, change.growth] }).to eq([["é", 80]])
  end

  describe "what to beware of" do
    def notes(first = {}, second = {})
      (snapshot(1, process: second, sites: { "a:1" => [1, 1] }) -
        snapshot(process: first, sites: { "a:1" => [1, 1] })).notes
    end

    it "is nothing in one process" do
      expect(notes).to eq([])
    end

    it "names two processes, versions, and a new start" do
      expect(notes({}, { pid: 4712, program: "b\n\xFF.rb" }).first)
        .to eq("Two processes are compared: 4711 (app.rb) and 4712 (b\\x0A\\xFF.rb).")
      expect(notes({}, { started: 20_000 })).to eq(["Process id 4711 was given to another process in between."])
      expect(notes({ ruby: "3.3.8" }, {})).to eq(["The earlier is of ruby 3.3.8, the later of ruby 3.1.2."])
      expect(notes({}, { memintro: "0.2.0" })).to eq(["The earlier is of memintro 0.1.0, the later of memintro 0.2.0."])
      expect(notes({}, { epoch: 2 })).to eq(["Tracking was started or cleared in between: its figures begin there."])
    end

    it "names what only one of the two has" do
      untracked = snapshot(1, classes: { "A" => [1, 1] }, process: { tracking: false })
      difference = untracked - snapshot(iseqs: {}, sites: { "a:1" => [1, 1] })
      expect(difference.notes)
        .to eq(["Malloc was tracked in only one of the two snapshots, so call sites cannot be compared.",
                "Only the earlier has iseqs.", "Only the later has classes."])
      expect(difference.call_sites).to be_nil
    end
  end

  describe "as text" do
    it "begins with a verdict" do
      expect(diff.to_s).to start_with(<<~TEXT)
        memintro 0.1.0: what changed in 90.0 s, pid 4711, ruby 3.1.2, 2026-11-22T12:01:30Z
        app.rb
        RSS grew by 120.0 MiB, from 50.0 MiB to 170.0 MiB.
        Instruction sequences +69.6 MiB in 10,000, all of /app/big.rb.
        Objects +1.1 MiB in 29,998, nearly all of class String.
        Malloc +195.1 KiB in 1,998, nearly all at /app/a.rb:1.
      TEXT
    end

    # 50 files with 950 to 999 sequences each, and one elsewhere.
    def spread(elsewhere)
      files = Array.new(50) { |i| ["/app/customer_rules/#{i / 25}/#{i}.rb", [950 + i, 780_000 + i]] }.to_h
      snapshot(1, iseqs: { **files, "/app/lib/a.rb" => [10, 5_000 + elsewhere] }, classes: {}) -
        snapshot(iseqs: { "/app/lib/a.rb" => [10, 5_000] }, classes: {})
    end

    it "gives the sum of spread growth, and the number of files with their folder" do
      expect(spread(0).to_s.lines[2]).to eq("Instruction sequences +37.2 MiB in 48,725, in 50 files of " \
                                            "/app/customer_rules/.\n")
      expect(spread(400_000).to_s.lines[2])
        .to eq("Instruction sequences +37.6 MiB in 48,725, most in 50 files of /app/customer_rules/ (+37.2 MiB).\n")
      half = spread(39_100_000)
      expect(half.to_s.lines[2])
        .to eq("Instruction sequences +74.5 MiB in 48,725, most of /app/lib/a.rb (+37.3 MiB).\n")
      expect(spread(0).kinds.map { |kind| [kind.name, kind.growth, kind.count_growth] })
        .to eq([["instruction sequences", 39_001_225, 48_725], ["objects", 0, 0]])
    end

    it "has the folder of spread growth above its files" do
      text = StringIO.new.tap { |io| spread(0).write(io, top: 2) }.string
      expect(text).to include(<<~TEXT)
        instruction sequences by file:
            growth    count        now  count now  file
         +37.2 MiB  +48,725   37.2 MiB     48,725  /app/customer_rules/*
        +761.8 KiB     +999  761.8 KiB        999  /app/customer_rules/1/49.rb
        +761.8 KiB     +998  761.8 KiB        998  /app/customer_rules/1/48.rb
        48 more changed, by +35.7 MiB together
      TEXT
      expect(spread(0).to_html.scan("/app/customer_rules/*").size).to eq(2)
    end

    it "says of lines of one folder how many there are, and names the first of classes where none stands out" do
      lines = Array.new(9) { |i| ["/app/models/m#{i}.rb:#{i + 1}", [100_000, 10]] }.to_h
      classes = Array.new(5) { |i| ["Kind#{i}", [100, 50_000 + i]] }.to_h
      grown = snapshot(1, sites: { "/app/a.rb:1" => [900, 9], **lines }, classes: classes) -
              snapshot(sites: { "/app/a.rb:1" => [900, 9] }, classes: {})
      expect(grown.to_s.lines[2, 2])
        .to eq(["Malloc +878.9 KiB in 90, in 9 lines of /app/models/.\n",
                "Objects +244.2 KiB in 500, above all of class Kind4 (+48.8 KiB), Kind3 (+48.8 KiB), " \
                "Kind2 (+48.8 KiB) and 2 more classes.\n"])
    end

    it "has a table for each list" do
      expect(diff.to_s).to include(<<~TEXT)
        instruction sequences by file:
           growth    count       now  count now  file
        +69.6 MiB  +10,000  69.6 MiB     10,000  /app/big.rb
      TEXT
      expect(diff.to_s).to include("objects by class:", "malloc by call site:", "GC counters:",
                                   "\n+60 ms  180 ms  time")
    end

    it "shows as many as asked, and what the others come to" do
      text = StringIO.new.tap { |io| diff.write(io, top: 1) }.string
      expect(text).to include("1.2 MiB     31,000  String\n2 more changed, by -80 B together\n")
      expect(text).not_to include("Gone")
      expect(StringIO.new.tap { |io| diff.write(io, top: nil) }.string).to include("Gone")
    end

    it "stays one line a row for any names" do
      nasty = snapshot(1, classes: { "A\n\e[31m\x00\xFF%s" => [1_000, 100_000] })
      lines = (nasty - snapshot(classes: {})).to_s.lines.grep(/A/)
      expect(lines).to include("+97.7 KiB  +1,000  97.7 KiB      1,000  A\\x0A\\x1B[31m\\x00\\xFF%s\n")
      expect(lines).to include("Objects +97.7 KiB in 1,000, all of class A\\x0A\\x1B[31m\\x00\\xFF%s.\n")
    end

    it "says how many fewer there are where the bytes grew and the count shrank" do
      first = snapshot(classes: { "String" => [1_000, 100_000], "Array" => [500, 20_000] })
      second = snapshot(1, classes: { "String" => [600, 1_900_000], "Array" => [586, 23_440] })
      text = (second - first).to_s
      expect(text).to include("\nObjects +1.7 MiB, though there are 314 fewer, nearly all of class String.\n")
      expect(text).not_to include("in -")
    end

    it "says so when nothing changed" do
      expect(described_class.new(earlier, earlier).to_s).to end_with("Nothing has changed.\n")
    end
  end

  describe "as JSON" do
    it "has everything" do
      parsed = JSON.parse(diff.to_json, symbolize_names: true)
      expect(parsed).to include(memintro_diff: 1, seconds: 90.0, same_process: true, notes: [])
      expect(parsed[:kinds].map { |kind| kind[:name] }).to eq(["instruction sequences", "objects", "malloc"])
      expect(parsed[:sections].keys).to include(:classes, :iseqs, :gc, :memory, :call_sites)
      expect(parsed[:sections][:iseqs].first).to include(name: "/app/big.rb", growth: 73_000_000, unit: "bytes")
      expect(StringIO.new.tap { |io| diff.write(io, format: :json) }.string).to eq(diff.to_json)
    end
  end

  describe "as a page" do
    let(:nasty) do
      name = %(</td><script>alert("1")</script><img src=x onerror='alert(2)'>&\xFF)
      snapshot(1, classes: { name => [1_000, 100_000] }, iseqs: { name => [9_000, 900_000] },
                  sites: { "#{name}:1" => [70_000, 7] }, process: { program: name }) - snapshot(classes: {}, iseqs: {})
    end

    it "escapes every text" do
      page = nasty.to_html
      expect(page).not_to match(/<script|<img|onerror='/)
      expect(page.scan("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;").size).to be >= 6
      expect(page).to be_valid_encoding
    end

    it "needs nothing else: no address, no script, and a policy that forbids both" do
      page = diff.to_html
      expect(page).not_to match(%r{https?://|//\w|<link|<script|url\(|@import|src=})
      expect(page).to include("content=\"default-src 'none'; style-src 'sha256-")
    end

    it "closes every element it opens" do
      opened = diff.to_html.scan(/<([a-z]\w*)/).flatten.tally.reject { |name, _| %w[meta br].include?(name) }
      closed = diff.to_html.scan(%r{</([a-z]\w*)}).flatten.tally
      expect(opened).to eq(closed)
      expect(opened["tr"]).to be >= 12
    end

    it "has a bar as long as the growth" do
      expect(diff.to_html).to include('<rect width="100.0" height="1"></rect>',
                                      '<rect width="0.3" height="1" class="down"></rect>')
    end
  end

  it "has a short inspect" do
    expect(diff.inspect).to eq("#<Memintro::Diff of 90.0 s: RSS grew by 120.0 MiB, from 50.0 MiB to 170.0 MiB. " \
                               "Instruction sequences +69.6 MiB in 10,000, all of /app/big.rb. " \
                               "Objects +1.1 MiB in 29,998, nearly all of class String. " \
                               "Malloc +195.1 KiB in 1,998, nearly all at /app/a.rb:1.>")
    expect(diff.classes.first.inspect).to eq("#<Memintro::Diff::Change String +1.1 MiB, +30,000 of them>")
  end

  it "refuses what it cannot write to, or as" do
    expect { diff.write(3) }.to raise_error(TypeError, /3 cannot be written to/)
    expect { diff.write(StringIO.new, format: :pdf) }.to raise_error(ArgumentError, /:pdf; it must be one of :text/)
    expect { diff.write(StringIO.new, top: 0) }.to raise_error(ArgumentError, /top is 0/)
  end

  describe "with accounts" do
    def of(seconds, rows, own = nil, **rest)
      Memintro::Snapshot.new(
        time: 1_790_000_000.0 + seconds, monotonic_s: 1000.0 + seconds, memory: { rss_bytes: rows.values.sum },
        gc: Snapshots::GC_STAT.merge(rest.delete(:gc) || {}), sites: call_sites({}, 0, {}), parts: [:account],
        missing: {}, account: rows, account_private: own, **rest
      )
    end

    it "names the row that has grown most, and the next command" do
      before = { malloc_native: 10 << 20, thread_stacks: 1 << 20, malloc_free: 9 << 20 }
      diff = of(60, before.merge(malloc_native: 51 << 20, malloc_free: 2 << 20)) - of(0, before)
      expect(diff.memory.first.growth).to eq(diff.account.sum(&:growth)).and eq(34 << 20)
      rss, row = diff.to_s.lines[2..3]
      expect(rss).to eq("RSS grew by 34.0 MiB, from 20.0 MiB to 54.0 MiB.\n")
      expect(row).to eq("malloc_native has grown most, by 41.0 MiB: malloc memory that no Ruby object counts as its " \
                        "own. Next: Memintro.leaks.\n")
      diff = of(60, before.merge(thread_stacks: 25 << 20)) - of(0, before)
      expect(diff.to_s).to include('Next: Memintro.holders("Fiber"), or "Thread".')
      expect(Memintro::Advice.naming_commands { diff.to_s })
        .to include("Next: memintro holders PID --class Fiber, or --class Thread.")
      diff = of(60, before.merge(malloc_free: 25 << 20)) - of(0, before)
      expect(diff.to_s).to include("Next: Memintro.account counts its arenas, Memintro.trim gives back what it can.")
      expect((of(60, before) - of(0, before)).to_s).not_to include("has grown most")
      expect((of(60, before.merge(memintro: 1000 << 10)) - of(0, before)).to_s).not_to include("has grown most")
    end

    it "names who holds the class that grew, where one class did" do
      before = { malloc_ruby_objects: 1 << 20, mapped_files: 5 << 20 }
      grown = before.merge(malloc_ruby_objects: 41 << 20)
      { "Net::HTTP" => "holders PID --class Net::HTTP", "(hidden T_ARRAY)" => "histogram PID" }.each do |name, command|
        diff = of(60, grown, classes: rows(name => [90, 40 << 20])) - of(0, before, classes: rows(name => [9, 1024]))
        expect(Memintro::Advice.naming_commands { diff.to_s })
          .to include("memory that Ruby objects own. Next: memintro #{command}.\n")
      end
      several = rows("A" => [9, 9 << 20], "B" => [9, 9 << 20], "C" => [9, 9 << 20])
      diff = of(60, grown, classes: several) - of(0, before, classes: [])
      expect(diff.to_s).to include("Next: Memintro.histogram.\n")
    end

    it "says what was shared and is private now" do
      rows = { ruby_heap_live: 80 << 20, malloc_native: 10 << 20, mapped_files: 5 << 20 }
      earlier = of(0, rows, { ruby_heap_live: 2 << 20, malloc_native: 1 << 20, mapped_files: 0 })
      later = of(60, rows, { ruby_heap_live: 70 << 20, malloc_native: 2 << 20, mapped_files: 0 },
                 gc: { old_objects: 900_000 })
      diff = later - Memintro::Snapshot.load(saved(earlier))
      expect(diff.account_private.map { |change| [change.name, change.growth >> 20] })
        .to eq([["ruby_heap_live", 68], ["malloc_native", 1]])
      expect(diff.to_s).to include("69.0 MiB that was shared with other processes is this process's own now, most of " \
                                   "it in ruby_heap_live (+68.0 MiB)")
      alone = rows.dup
      expect((of(60, rows, alone) - of(0, rows, alone)).account_private).to be_nil
    end

    it "says nothing of shared memory where memory was given back, and none was shared" do
      rows = { malloc_free: 80 << 20, mapped_files: 5 << 20 }
      diff = of(60, rows.merge(malloc_free: 1 << 20)) - of(0, rows)
      expect(diff.to_s).to include("-79.0 MiB").and match(/\A(?!.*shared with)/m)
    end

    def saved(snapshot)
      file = File.join(Dir.mktmpdir("memintro-diff"), "a.json")
      snapshot.save(file)
      file
    end
  end
end
