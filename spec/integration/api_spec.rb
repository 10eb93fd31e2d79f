# frozen_string_literal: true

require_relative "../spec_helper"
require "fileutils"
require "tmpdir"

# The Ruby API on the built hook, live: what its figures and answers are in a real process. Arguments and rendering
# are in spec/unit.
RSpec.describe "the Ruby API" do
  one_ruby requires: %w[memintro fiddle json]

  def answer(code) = run_forked(code).must_succeed.json

  it "tracks a block, answers for it, and is off afterwards" do
    figures = answer(<<~'RUBY')
      totals = Memintro.track { $kept = Fiddle.malloc(70_001) }
      later = Memintro.totals.allocations
      $more = Array.new(100) { Fiddle.malloc(64) }
      puts JSON.generate(live: totals.live_bytes, tracking: Memintro.tracking?, mode: Memintro.mode,
                         later: Memintro.totals.allocations - later, site: Memintro["-e:1"].live_bytes)
    RUBY
    expect(figures).to include(tracking: false, mode: "off", later: 0)
    expect([figures[:live], figures[:site]]).to all(be_between(70_001, 75_000))
  end

  %w[full sampled].each do |mode|
    it "finds the sites that matter most as if it had sorted all, and knows what the others add up to (#{mode})" do
      bytes = mode == "sampled" ? 2_000 : nil
      figures = answer("MODE, BYTES = :#{mode}, #{bytes.inspect}; " + read_program("api/heaviest_sites.rb"))
      expect(figures[:sites]).to be > 150
      expect(figures).to include(missed: [], left_out: figures[:rest])
    end
  end

  it "forgets its figures also when it does not track any more, or not yet" do
    figures = answer(<<~'RUBY')
      Memintro.clear
      Memintro.start
      $kept = Array.new(1_000) { Fiddle.malloc(5_000) }
      before = Memintro.stop
      Memintro.clear
      after = [Memintro.totals.live_bytes, Memintro.totals.allocations, Memintro.top.size]
      Memintro.start
      $more = Fiddle.malloc(70_001)
      puts JSON.generate(before: before.live_bytes, after: after, again: Memintro["-e:8"].live_bytes,
                         old: Memintro["-e:3"]&.live_bytes)
    RUBY
    expect(figures[:before]).to be >= 5_000_000
    expect(figures).to include(after: [0, 0, 0], old: nil)
    expect(figures[:again]).to be_between(70_001, 75_000)
  end

  it "adds up a block inside a tracking that goes on" do
    figures = answer(<<~'RUBY')
      Memintro.start
      kept = Fiddle.malloc(80_001)
      added = Memintro.track { Fiddle.free(kept); $other = Fiddle.malloc(90_001) }
      puts JSON.generate(allocated: added.allocated_bytes, freed: added.freed_bytes, live: added.live_bytes,
                         tracking: Memintro.tracking?)
    RUBY
    expect(figures).to include(allocated: be_between(90_001, 95_000), freed: be_between(80_001, 85_000), tracking: true)
    expect(figures[:live]).to be_between(10_000, 14_000)
  end

  it "nests untracked: all inner ends still leave the thread untracked, errors and other threads included" do
    figures = answer(read_program("api/nested_untracked.rb"))
    expect(figures).to eq(sizes: [20_001, 20_002], value: 7)
  end

  it "does not count what untracked allocates, but follows its blocks' and others' frees" do
    figures = answer(<<~'RUBY')
      Memintro.start
      tracked = Fiddle.malloc(60_001)
      before = Memintro.totals
      hidden = Memintro.untracked { Fiddle.free(tracked); Fiddle.malloc(50_001) }
      Fiddle.free(hidden)
      added = Memintro.totals - before
      puts JSON.generate(allocated: added.allocated_bytes, freed: added.freed_bytes)
    RUBY
    expect(figures).to include(allocated: be < 5_000, freed: be_between(60_001, 65_000))
  end

  it "measures growth from the mark, also where memory was given back" do
    figures = answer(<<~'RUBY')
      Memintro.start
      blocks = []
      grow = proc { blocks << Fiddle.malloc(10_001) }
      5.times(&grow)
      Memintro.mark
      before = Memintro["-e:3"].growth
      3.times(&grow)
      grown = Memintro["-e:3"].growth
      7.times { Fiddle.free(blocks.pop) }
      puts JSON.generate(growth: [before, grown, Memintro["-e:3"].growth])
    RUBY
    expect(figures[:growth]).to match([0, be_between(30_003, 32_000), be_between(-41_000, -39_000)])
  end

  it "tells old blocks from young ones" do
    figures = answer(<<~'RUBY')
      Memintro.start
      old = Fiddle.malloc(20_001)
      4.times { GC.start }
      young = Fiddle.malloc(30_001)
      names = ->(sites) { sites.select { |site| site.live_bytes > 20_000 }.map(&:name) }
      blocks = Memintro["-e:2"].each_block.to_a.select { |size,| size == 20_001 }
      puts JSON.generate(all: names[Memintro.top], old: names[Memintro.top(older_than_gcs: 3)],
                         ages: blocks.map { |_, generation,| GC.count - generation },
                         address: blocks.map { |block| block[2] } == [old.to_i])
    RUBY
    expect(figures).to include(all: ["-e:4", "-e:2"], old: ["-e:2"], address: true)
    expect(figures[:ages]).to match([be_between(4, 8)])
  end

  # With one byte in each sampled, every block of such a size is followed and stands for itself alone.
  ["", "mode: :sampled, sample_bytes: 1"].each do |settings|
    it "takes a block for old from the very collection on that makes it so (#{settings})" do
      figures = answer(format(<<~'RUBY', settings))
        blocks = Array.new(5)
        make = ->(i) { blocks[i] = Fiddle.malloc(50_001) }
        make.call(4)
        # Nothing but GC.start collects from here on.
        GC.disable
        Memintro.start(%s)
        born = Array.new(4) { |i| make.call(i); GC.count.tap { GC.start if i < 3 } }
        now = GC.count
        aged = (0..4).map { |least| Memintro.top(nil, older_than_gcs: least).find { |site| site.name == "-e:2" } }
        ages = Memintro["-e:2"].each_block.select { |size,| size == 50_001 }.map { |_, generation,| now - generation }
        puts JSON.generate(outlived: born.map { |count| now - count }, ages: ages.sort, now: GC.count - now,
                           live: aged.map { |site| site && site.live_bytes / 50_001 },
                           rest: aged.compact.map { |site| site.live_bytes.modulo(50_001) }.max)
      RUBY
      # Blocks that outlived three collections, two, one and none; asked for those that outlived 0, 1, 2, 3 and 4.
      expect(figures).to include(outlived: [3, 2, 1, 0], ages: [0, 1, 2, 3], now: 0, live: [4, 3, 2, 1, nil])
      expect(figures[:rest]).to be < 5_000
    end
  end

  it "keeps the figures after stop, and begins the next start empty", :vm do
    figures = answer(<<~'RUBY')
      Memintro.start
      $kept = Fiddle.malloc(40_001)
      same = Memintro.start
      final = Memintro.stop
      readable = Memintro["-e:2"].live_bytes
      stopped_twice = Memintro.stop == final
      Memintro.start
      puts JSON.generate(same: same, final: final.live_bytes, readable: readable, twice: stopped_twice,
                         fresh: Memintro.totals.live_bytes, gone: Memintro["-e:2"].nil?)
    RUBY
    expect(figures).to include(same: true, twice: true, gone: true, fresh: be < 20_000)
    # The collector makes some 20,000 bytes where it runs: four pieces of its stack of marks have 4,008 each.
    expect([figures[:final], figures[:readable]]).to all(be_between(40_001, 70_000))
  end

  it "starts and stops in each mode while each allocation collects", :vm do
    code = <<~'RUBY'
      states = [{}, { mode: :sampled }, { objects: true }, { objects: :sampled }].map do |options|
        Memintro.start(**options)
        kept = Array.new(200) { "x" * 1_001 }
        least = kept.size * 1_001
        [kept.size, Memintro["-e:3"]&.live_bytes.to_i >= least, Memintro.stop.live_bytes >= least]
      end
      puts JSON.generate(states: states)
    RUBY
    result = run_ruby(code: code, requires: %w[json memintro], env: { "MEMINTRO_SPEC_STRESSED_START" => "1" })
    states = result.must_succeed.json[:states]
    expect(states.size).to eq(4)
    # Figures of 200 strings from samples are estimates.
    expect(states.values_at(0, 2)).to all(eq([200, true, true]))
    expect(states.map(&:first)).to all(eq(200))
  end

  it "starts afresh with other settings, and shares (other) among what is beyond max_sites", :vm do
    figures = answer(<<~'RUBY')
      Memintro.start
      $kept = Fiddle.malloc(40_001)
      Memintro.start(max_sites: 8)
      $more = 50.times.map { |i| eval("Fiddle.malloc(1_001)", binding, "made/up_#{i}.rb", 1) }
      # Anew if a thread ends meanwhile, and frees its signal stack: 47 kB where the processor has large registers.
      sites = totals = nil
      10.times do
        before = Memintro.totals.live_bytes
        sites = Memintro.each_call_site.to_a
        totals = Memintro.totals.live_bytes
        break if (totals - before).abs < 5_000
      end
      puts JSON.generate(sites: sites.size, other: Memintro["(other)"].live_bytes, sum: sites.sum(&:live_bytes),
                         totals: totals)
    RUBY
    expect(figures[:sites]).to be <= 12
    expect(figures[:other]).to be >= 42 * 1_001
    expect(figures[:sum]).to be_within(5_000).of(figures[:totals])
  end

  it "counts per thread" do
    figures = answer(<<~'RUBY')
      Memintro.start
      work = -> { before = Memintro.thread_totals; $kept = Fiddle.malloc(60_001); Memintro.thread_totals - before }
      work.call
      there = Thread.new(&work).value
      before = Memintro.thread_totals
      Thread.new { Fiddle.malloc(50_000_001) }.join
      puts JSON.generate(there: there.allocated_bytes, here: (Memintro.thread_totals - before).allocated_bytes)
    RUBY
    # A new thread's stack is its creator's.
    expect(figures).to include(there: be_between(60_001, 65_000), here: be < 5_000_000)
  end

  it "answers in a signal handler", :vm do
    result = run_ruby(code: <<~'RUBY').must_succeed
      Memintro.start
      trap("USR1") do
        Memintro.report(top: 1)
        Memintro.report(format: :json, top: 1)
        Memintro.doctor.to_s
        Memintro.stop
        puts "reached the end"
      end
      Process.kill(:USR1, Process.pid)
      sleep 0.01 while Memintro.tracking?
    RUBY
    expect(result.stdout).to start_with("memintro ").and end_with("reached the end\n")
  end

  it "searches for leaks, and says what it has found, in a signal handler" do
    result = run_ruby(code: <<~'RUBY').must_succeed
      trap("USR1") { puts [Memintro.leaks.to_s.lines.size.positive?, Memintro.leaks.to_h.key?(:leaked_bytes)].inspect }
      Process.kill(:USR1, Process.pid)
    RUBY
    expect(result.stdout).to eq("[true, true]\n")
  end

  it "reads itself without adding to what it reads", :vm do
    figures = answer(read_program("api/reading_itself.rb"))
    expect(figures[:sites]).to be > (ENV["MEMINTRO_GC_STRESS"] ? 20 : 2_000)
    expect(figures[:allocations]).to be < 60
    expect(figures[:bytes]).to be < 6_000
  end

  describe "where the hook cannot be had" do
    around do |example|
      Dir.mktmpdir do |folder|
        FileUtils.cp_r(Subprocess::LIB, folder)
        FileUtils.rm(File.join(folder, "lib/memintro/libmemintro_hook.so"))
        @lib = File.join(folder, "lib")
        example.run
      end
    end

    it "raises from what needs it, and only from that" do
      code = <<~'RUBY'
        require "json"
        errors = [-> { Memintro.start }, -> { Memintro.track {} }].map do |call|
          call.call
        rescue Memintro::Error => e
          e.class
        end
        Memintro.mark
        Memintro.clear
        Memintro.report(File.open(File::NULL, "w"))
        puts JSON.generate(errors: errors, totals: Memintro.totals.live_bytes, stop: Memintro.stop.live_bytes,
                           top: Memintro.top, untracked: Memintro.untracked { 1 }, problems: Memintro.doctor.problems)
      RUBY
      result = run_command(RbConfig.ruby, "-I#{@lib}", "-rmemintro", "-e", code, way: :bare).must_succeed.json
      expect(result).to include(errors: %w[Memintro::UnsupportedError Memintro::UnsupportedError], totals: 0, stop: 0,
                                top: [], untracked: 1)
      expect(result[:problems]).to match([/hook could not be loaded/])
    end

    it "lets a program that requires memintro/autorun go on" do
      result = run_command(RbConfig.ruby, "-r#{@lib}/memintro/autorun.rb", "-e", "puts 'done'", way: :bare)
      expect([result.stdout, result.status.exitstatus]).to eq(["done\n", 0])
      expect(result.stderr).to match(/\Amemintro: not tracking process \d+: the hook could not be loaded.*\n\z/)
    end

    it "is told by the command before it runs anything" do
      FileUtils.cp_r(File.join(Subprocess::ROOT, "exe"), File.dirname(@lib))
      result = run_command(RbConfig.ruby, File.join(File.dirname(@lib), "exe/memintro"), "run", "--", "echo", "ran")
      expect([result.status.exitstatus, result.stdout]).to eq([1, ""])
      expect(result.stderr).to match(/\Amemintro: the hook is not built: there is no .* bin\/setup/)
    end
  end

  it "does not start with MEMINTRO_DISABLE=1, for any configuration" do
    code = "Memintro.configure { |c| c.mode = :sampled }; p Memintro.start, Memintro.tracking?, Memintro.disabled?"
    result = run_ruby(env: { "MEMINTRO_DISABLE" => "1" }, code: code).must_succeed
    expect(result.stdout).to eq("false\nfalse\ntrue\n")
    expect(result.stderr).to match(/\Amemintro: MEMINTRO_DISABLE=1 is set.*\n\z/)
  end
end
