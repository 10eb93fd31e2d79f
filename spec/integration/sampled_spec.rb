# frozen_string_literal: true

require_relative "../spec_helper"

# `mode: :sampled` on the built hook: how right the estimates are, and that all else holds as in full mode.
RSpec.describe "sampled mode" do
  one_ruby requires: %w[memintro memintro/mwrap fiddle json stringio tempfile]

  def answer(code) = run_forked(code).must_succeed.json

  { preloaded: 0, live: 1 }.each do |way, origin|
    # 4,000 intervals: the share has a standard error of a third of a percent. The long run looks at 20,000.
    { 4 => {}, 20 => { long: true } }.each do |runs, tags|
      it "gives 95 % intervals that hold the truth for 93 to 97 % of 1,000 sites over #{runs} runs, #{way}", **tags do
        verdict = native(program("sampled.cc"), runs, 1024, 2, way: way, deadline_seconds: 600)
        expect(verdict).to include(intervals: runs * 1_000, origin: origin)
        figures = verdict.except(:intervals, :origin)
        expect(figures.keys).to eq(%i[allocations frees total_bytes freed_bytes live_blocks live_bytes growth])
        expect(figures.transform_values(&:first)).to match(figures.transform_values { be_between(0.93, 0.97) })
        # 150,000 samples a run: the error of the sum over ten is about a thousandth. Growth is a difference.
        tenth = Math.sqrt(10.0 / runs)
        expect(figures.except(:growth).transform_values(&:last).values).to all(be_within(0.004 * tenth).of(1))
        expect(figures[:growth].last).to be_within(0.01 * tenth).of(1)
      end
    end

    # How the hook came in and of which sizes the blocks are does not depend on each other: `bin/test` runs one of the
    # four pairs, and `bin/test --all` all of them.
    %w[equal mixed].each do |sizes|
      it "holds the truth as often at 1, 3, 10, 100 and 1,000 samples of #{sizes} sizes, #{way}",
         long: way == :preloaded || sizes == "equal" do
        shares = { 1 => 20, 3 => 12, 10 => 8, 100 => 4, 1_000 => 12 }.map do |samples, runs|
          verdict = native(program("sampled.cc"), runs, 1024, 1, samples, sizes, way: way, deadline_seconds: 600)
          figures = verdict.except(:intervals, :origin).transform_values(&:first)
          # Growth since a mark has symmetric errors: with few samples its interval holds more often.
          expect(figures.delete(:growth)).to be_between(0.93, samples < 100 ? 1 : 0.98), "#{samples}: #{verdict}"
          [samples, figures]
        end
        shares.each do |samples, figures|
          expect(figures.values).to all(be_between(0.93, 0.97)), "#{samples}: #{figures}"
        end
      end
    end

    it "follows the C family and all of new and delete on four threads, #{way}" do
      [1, 4096].each do |mean|
        env = { "TRUTH_SAMPLE_BYTES" => mean.to_s, "TRUTH_WITHOUT_FAILURES" => "1" }
        expect(truth(operations: 300_000, way: way, seed: mean, env: env)).to include(
          differences: "", wrong_sites: 0, wrong_threads: 0, corrupt: 0, missed_frees: 0, dropped: 0, totals_agree: true
        )
      end
    end
  end

  it "estimates behind jemalloc, whose operator new calls no malloc" do
    jemalloc = NativePrograms.jemalloc or skip "libjemalloc2 is not installed"
    env = { "TRUTH_SAMPLE_BYTES" => "1000", "TRUTH_WITHOUT_FAILURES" => "1",
            "LD_PRELOAD" => "#{Subprocess::HOOK}:#{jemalloc}" }
    expect(truth(operations: 200_000, way: :preloaded, env: env)).to include(differences: "", wrong_sites: 0)
  end

  it "leaves the allocator's behaviour as it is, errno included" do
    path = program("behaviour.cc")
    bare = run_command(path).must_succeed.stdout
    %w[1 524288].each do |mean|
      env = preloaded_env(mode: "sampled").merge("MEMINTRO_SAMPLE_BYTES" => mean, "MEMINTRO_NATIVE_CHILDREN" => "1")
      expect(run_command(path, env: env).must_succeed.stdout).to eq(bare)
    end
  end

  it "knows a thread's bytes exactly, and marks what it estimates" do
    figures = answer(<<~'RUBY')
      Memintro.start(mode: :sampled)
      work = -> { before = Memintro.thread_totals; 100.times { Fiddle.free(Fiddle.malloc(70_001)) }; Memintro.thread_totals - before }
      work.call
      mine, other = work.call, Thread.new(&work).value
      quiet = Memintro.thread_totals
      Memintro.untracked { Fiddle.malloc(90_000_001) }
      puts JSON.generate(mode: Memintro.mode, mine: mine.allocated_bytes, other: other.allocated_bytes,
                         quiet: (Memintro.thread_totals - quiet).allocated_bytes, estimated: mine.estimated?,
                         error: mine.freed_bytes_standard_error, totals: Memintro.totals.to_h,
                         mean: Memintro::Native.sample_bytes)
    RUBY
    expect(figures).to include(mode: "sampled", mean: 524_288, estimated: true, quiet: be < 10_000)
    expect([figures[:mine], figures[:other]]).to all(be_between(7_000_100, 7_100_000))
    expect(figures[:error]).to be_between(100_000, 5_000_000)
    expect(figures[:totals]).to include(estimated: true, live_bytes_standard_error: be_a(Float))
  end

  it "keeps what was tracked before a switch of modes, with its weight, and begins empty after a stop" do
    figures = answer(read_program("sampled/switched.rb"))
    expect(figures).to include(same: true, exact: true, blank: true, epochs: 1)
    expect(figures[:first]).to be_between(1_000_000, 1_010_000)
    expect(figures[:weights]).to match([be_within(1e-9).of(1 / (1 - Math.exp(-0.5)))])
    expect(figures[:live]).to be_within(6 * figures[:error]).of(1_500_000)
    expect(figures[:error]).to be_between(10_000, 40_000)
    # The rest there are the arrays.
    expect(figures[:left]).to all(be < 40_000)
  end

  it "counts growth from a mark, old blocks, sites beyond the limit, and forgets what is cleared" do
    figures = answer(<<~'RUBY')
      Memintro.start(mode: :sampled, sample_bytes: 200, max_sites: 20)
      old = Array.new(1_000) { Fiddle.malloc(300) }
      4.times { GC.start }
      Memintro.mark
      young = Array.new(1_000) { Fiddle.malloc(300) }
      aged = Memintro.top(nil, older_than_gcs: 3).find { |site| site.name == "-e:2" }
      grown = [Memintro["-e:2"], Memintro["-e:5"]].map { |site| [site.growth, site.growth_standard_error] }
      60.times { |i| eval("Fiddle.malloc(5_001)", binding, "made/up_#{i}.rb", 1) }
      other = Memintro["(other)"].live_bytes
      Memintro.clear
      puts JSON.generate(aged: aged.live_blocks, error: aged.live_blocks_standard_error, grown: grown, other: other,
                         gone: Memintro["-e:2"].nil?, mode: Memintro.mode)
    RUBY
    expect(figures).to include(gone: true, mode: "sampled", other: be > 40 * 5_000)
    expect(figures[:aged]).to be_within(5 * figures[:error]).of(1_000)
    (kept, kept_error), (grown, error) = figures[:grown]
    expect([kept, kept_error]).to match([be_between(-5_000, 20_000), be < 20_000])
    expect(grown).to be_within(6 * error).of(300_000)
  end

  it "draws other blocks in a forked child, and goes on there" do
    figures = answer(<<~'RUBY')
      Memintro.start(mode: :sampled, sample_bytes: 2_000)
      work = -> { Array.new(2_000) { Fiddle.malloc(100) }; Memintro["-e:2"].then { |s| [s.allocations, s.allocations_standard_error] } }
      reader, writer = IO.pipe
      pids = Array.new(4) { fork { writer.puts(JSON.generate(work.call)); exit!(0) } }
      pids.each { |pid| Process.wait(pid) }
      writer.close
      puts JSON.generate([work.call, *reader.each_line.map { |line| JSON.parse(line) }])
    RUBY
    expect(figures.size).to eq(5)
    expect(figures.map(&:first).uniq.size).to be > 1
    figures.each { |allocations, error| expect(allocations).to be_within(6 * error).of(2_000) }
  end

  it "is marked in the text, the JSON, the raw dump and mwrap's dump, and read back the same" do
    figures = answer(read_program("sampled/marked.rb"))
    expect(figures[:text]).to match(/^live ~\d.* ±.* in ~[\d,]+ ±[\d,]+ blocks, allocated ~/)
      .and match(/^ *~[\d.]+ KiB ±[\d.]+ KiB .* -e:2$/).and include("one byte in 1,000")
    expect(figures[:mwrap]).to eq("# memintro: estimates from a sample, one byte in 1000\n")
    expect(figures[:inspect]).to match(/ live ~[\d.]+ KiB ±[\d.]+ KiB in ~\d+ ±\d+ blocks, ~\d+ ±\d+ allocations/)
    site = figures[:json][:call_sites].find { |row| row[:name] == "-e:2" }
    expect(site).to include(estimated: true, live_bytes_standard_error: be_between(10_000, 40_000))
    expect(figures[:json]).to include(version: 1, totals: include(estimated: true),
                                      process: include(sample_bytes: 1000))
    expect(figures[:same]).to eq([[true, 1000], [true, 1000]])
    figures[:errors].each do |errors|
      errors.each { |name, error| expect(error).to be_within(0.01 + (error * 1e-6)).of(figures[:mine][name]) }
    end
  end

  it "has no bytes of refused allocations" do
    figures = run_ruby(code: <<~RUBY, requires: %w[memintro json fiddle]).must_succeed.json
      Memintro.start(mode: :sampled)
      asked = -> { Memintro.thread_totals.allocated_bytes }
      block = Fiddle.malloc(100)
      before = asked.call
      begin; "x" * (1 << 46); rescue NoMemoryError; end
      begin; Fiddle.realloc(block, 1 << 46); rescue NoMemoryError; end
      begin; Fiddle.realloc(0, 1 << 62); rescue NoMemoryError; end
      refused = asked.call - before
      kept = Array.new(10) { "y" * 1_000_000 }
      puts JSON.generate([refused, asked.call - before - refused])
    RUBY
    expect(figures).to match([be_between(0, 1_000_000), be_between(10_000_000, 10_500_000)])
  end

  it "has no bytes of resizes in place that jemalloc refused" do
    jemalloc = NativePrograms.jemalloc or skip "libjemalloc2 is not installed"
    env = { "LD_PRELOAD" => "#{Subprocess::HOOK}:#{jemalloc}" }
    figures = run_ruby(code: <<~RUBY, requires: %w[memintro json fiddle], env: env).must_succeed.json
      Memintro.start(mode: :sampled)
      asked = -> { Memintro.thread_totals.allocated_bytes }
      resize = Fiddle::Function.new(Fiddle.dlopen(#{shared_module("resize_in_place.c").inspect})["resize_in_place"],
                                    [Fiddle::TYPE_VOIDP, Fiddle::TYPE_SIZE_T], Fiddle::TYPE_SIZE_T)
      block = Fiddle.malloc(100)
      before = asked.call
      usable = resize.call(block, 1 << 46)
      puts JSON.generate(usable: usable, refused: asked.call - before)
    RUBY
    expect(figures).to match(usable: be < 200, refused: be_between(0, 1_000_000))
  end

  it "stops by itself after stop_after, in a child too, without a thread of the application's" do
    figures = answer(<<~'RUBY')
      Memintro.start(mode: :sampled, sample_bytes: 100, stop_after: 0.3)
      kept = Fiddle.malloc(50_001)
      again = Memintro.start(mode: :sampled, sample_bytes: 100)
      wait = -> { 1_000.times { break unless Memintro.tracking?; sleep 0.02 }; Memintro.tracking? }
      reader, writer = IO.pipe
      pid = fork { writer.puts(wait.call); exit!(0) }
      writer.close
      here, there = wait.call, reader.read
      Process.wait(pid)
      live = Memintro["-e:2"].live_bytes
      Memintro.start(stop_after: 3600)
      Memintro.start(mode: :sampled)
      Memintro.stop
      sleep 0.01 while Thread.list.any? { |thread| thread.name == "memintro-stop" }
      puts JSON.generate(again: again, here: here, there: there, live: live, threads: Thread.list.size)
    RUBY
    expect(figures).to include(again: true, here: false, there: "false\n", live: be > 50_000, threads: 1)
  end

  it "is there from the command line, and stops there too" do
    code = 'x = Array.new(2_000) { "a" * 1_000 }; sleep 0.02 while Memintro.tracking?; p Memintro.mode, x.size'
    result = run_memintro("run", "--mode", "sampled", "--sample-bytes", "5000", "--stop-after", "0.5", "--top", "2",
                          "--", RbConfig.ruby, "-e", code).must_succeed
    expect(result.stdout).to eq(":off\n2000\n")
    expect(result.stderr).to match(/^live ~.* ±/).and include("Tracking is off").and include("one byte in 5,000")
  end

  it "refuses wrong settings in words" do
    [[%w[--sample-bytes 100], /--sample-bytes 100 is for sampled mode: add --mode sampled/],
     [%w[--mode sampled --sample-bytes 0], /--sample-bytes is "0"; it must be a whole number from 1 to 1073741824/],
     [%w[--stop-after never], /--stop-after is "never"; it must be a number of seconds above 0/],
     [%w[--mode some], /--mode is "some"; it must be full or sampled/]].each do |flags, message|
      result = run_memintro("run", *flags, "--", "true")
      expect([result.success?, result.stderr]).to match([false, message])
    end
  end
end
