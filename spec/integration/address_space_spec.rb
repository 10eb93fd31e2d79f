# frozen_string_literal: true

require "spec_helper"

# VmSize is what alarms look at, and what `ulimit -v` and some containers limit: what a process has reserved, used or
# not.
RSpec.describe "The address space of a tracked process" do
  # Its value before, with tracking on, and with three million more blocks, all followed.
  def sizes(mode, way)
    run_ruby(way: way, env: way == :preloaded ? { "MEMINTRO_MODE" => mode } : {}, code: <<~RUBY).must_succeed.json
      require "json"
      figures = -> { [Memintro.vsize, Memintro.rss] }
      before = figures.call
      Memintro.start(mode: :#{mode}) unless Memintro.tracking?
      started = figures.call
      $kept = Array.new(3_000_000) { "x" * 60 }
      filled = figures.call
      peak = File.read("/proc/self/status")[/VmPeak:\\s+(\\d+)/, 1].to_i * 1024
      puts JSON.generate(before: before, started: started, filled: filled, peak: peak, blocks: Memintro.totals.live_blocks,
                         dropped: Memintro.totals.dropped)
    RUBY
  end

  def bare
    run_ruby(requires: [], way: :bare, code: "puts File.read('/proc/self/status')[/VmSize:\\s+(\\d+)/, 1]")
      .must_succeed.stdout.to_i * 1024
  end

  TruthDriver::WAYS.product(%w[full sampled]).each do |way, mode|
    it "is at most a GiB more, and grows by what is used, #{mode}, #{way}" do
      figures = sizes(mode, way)
      before = way == :preloaded ? bare : figures[:before].first
      expect(figures[:started].first - before).to be_between(0, 1 << 30)
      reserved, used = figures[:filled].zip(figures[:started]).map { |now, then_| now - then_ }
      expect(used).to be > 3_000_000 * 80
      # A step of each of three kinds of memory ahead of what is used, and Ruby's own.
      expect(reserved - used).to be < 256 << 20
      expect(figures[:peak] - figures[:filled].first).to be < 256 << 20
      expect(figures[:dropped]).to eq(0)
      expect(figures[:blocks]).to be_within(mode == "full" ? 100_000 : 600_000).of(3_000_000)
    end
  end

  describe "of a program that may have 117 MiB of it" do
    let(:limit) { [120_000 << 10, Process.getrlimit(:AS).last] }

    it "is left to it: memintro run tracks nothing, and says so in one line" do
      result = run_memintro("run", "--", RbConfig.ruby, "-e", "print 1; exit 3", rlimit_as: limit)
      expect([result.stdout, result.status.exitstatus]).to eq(["1", 3])
      expect(result.stderr.lines)
        .to match([/\Amemintro: not tracking process \d+: .* \(ulimit -v 120000\), .* raise .* to 262144 or more\n/])
    end

    %w[account leaks diff snapshot].each do |command|
      it "does not change how it ends: memintro #{command}" do
        result = run_memintro(command, "--", RbConfig.ruby, "-e", "print 1; exit 3", rlimit_as: limit)
        expect([result.stdout, result.status.exitstatus]).to eq(["1", 3])
        expect(result.stderr).not_to match(/\(\w+Error\)|\[FATAL\]|\[BUG\]/)
      end
    end
  end
end
