# frozen_string_literal: true

require_relative "../spec_helper"
require "tmpdir"

# The harness of bin/bench, with one round of tiny programs. No figure is looked at: nothing is fast or slow here.
RSpec.describe "bin/bench" do
  def bench(*arguments)
    run_command(File.join(Subprocess::ROOT, "bin/bench"), *arguments)
  end

  it "runs programs in Ruby's columns and memintro's, which all do the same work and see allocations" do
    # In so small a program a sample may be empty.
    columns = %w[plain again off stopped idle full live trace]
    result = bench("--quick", "--only", "json,threads", "--measures", "cpu,rss", "--columns", columns.join(","))
    lines = result.must_succeed.stdout.lines(chomp: true)
    expect(lines[1].split(/\s{2,}/)).to match_array(["workload", *columns])
    %w[json threads].product(%w[CPU RSS]).each do |workload, measure|
      row = lines.grep(/\A#{workload} +#{measure} /).first
      expect(row.scan(/\d+\.\d\dx/).size).to eq(columns.size - 1)
    end
    expect(result.stdout).not_to include("has no figure")
  end

  it "drives a server, and measures its workers" do
    missing = %w[puma wrk].find { |program| !system("which", program, out: File::NULL) }
    skip "#{missing} is not installed" if missing
    columns = %w[plain line full live]
    result = bench("--quick", "--no-setup", "--only", "server", "--columns", columns.join(",")).must_succeed
    expect(result.stdout).not_to include("has no figure")
    ["CPU/request", "p50", "p99", "paced p50", "paced p99", "RSS"].each do |measure|
      row = result.stdout[/^server +#{measure} .*$/]
      expect(row.scan(/\d+\.\d\dx/).size).to eq(columns.size - 1)
    end
    # Some 5,700. Requests under way at either end of so short a run count with one figure and not with the other.
    expect(result.stdout[/([\d.]+) allocations each/, 1].to_i).to be_between(3_000, 12_000)
  end

  it "times forks" do
    lines = bench("forks", "1", "5").must_succeed.stdout.lines
    expect(lines.first.split(/\s{2,}/).map(&:strip))
      .to eq(["a fork", "plain", "again", "full", "live", "sampled", "live sampled"])
    expect(lines.drop(1).map { |line| line.scan(/\d+\.\dx/).size }).to eq([5, 5, 5])
  end

  it "times full collections" do
    lines = bench("collection", "--quick", "--columns", "full,live").must_succeed.stdout.lines
    expect(lines.first.split).to eq(%w[a full collection plain full live])
    expect(lines.drop(1)).to match([/\Anothing to free +\d+ ms( +\d+\.\d\dx){2}$/,
                                    /\A300,000 strings to free +\d+ ms( +\d+\.\d\dx){2}$/])
  end

  it "compares a run with plain Ruby's of the same round" do
    folder = Dir.mktmpdir("memintro-bench")
    record = File.join(folder, "record.csv")
    # The machine is twice as slow in the second round; the ratio of the medians would be 2.67.
    runs = [["plain", 1.0], ["full", 1.5], ["plain", 2.0], ["full", 4.0], ["plain", 1.5], ["full", 4.5]]
    rows = runs.map { |column, cpu_s| "strings,#{column},#{cpu_s},#{cpu_s},1000000,\n" }
    File.write(record, ["workload,column,cpu_s,wall_s,peak_rss_bytes,failure\n", *rows].join)
    row = bench("show", record, "--measures", "cpu").must_succeed.stdout[/^strings .*$/]
    expect(row.split).to eq(%w[strings CPU 1.50 s 2.00x])
  ensure
    FileUtils.rm_rf(folder)
  end

  # The program itself fails if a shape has lost a block at the end, or has it elsewhere than it belongs.
  describe "of the table", :long, deadline_seconds: 900 do
    one_thread = %w[bare radix open table alone records records-alone]
    shapes = { "1k-even" => one_thread, "5M-mixed" => one_thread, "5M-64B-2t" => %w[bare radix open table records],
               "exchange-64B" => %w[bare radix open table records] }

    # The shapes that have figures, by case.
    def measured(result)
      rows = result.must_succeed.stdout.scan(/^(\S+) +(\S+)((?: +-?[\d.]+){6})$/)
      expect(rows.map { |_, _, figures| figures.split.first.to_f }).to all(be > 1)
      rows.group_by(&:first).transform_values { |found| found.map { |row| row[1] } }
    end

    def table(*arguments, env: {})
      bench = File.join(Subprocess::ROOT, "bin/bench")
      run_command(bench, "table", "--quick", *arguments, env: env, deadline_seconds: 900)
    end

    it "has figures of each shape, those of in-band records among them" do
      expect(measured(table(*shapes.keys))).to eq(shapes)
    end

    %w[jemalloc mimalloc tcmalloc].each do |name|
      it "has figures of side tables with #{name}" do
        skip "#{name} is not installed" if Dir["/usr/lib/*-linux-gnu/lib#{name}{,_minimal}.so.[234]"].empty?
        result = table("--allocator", name, *shapes.keys)
        expect(measured(result)).to eq(shapes.transform_values { |names| names.grep_v(/records/) })
        expect(result.stdout).to match(/^allocator: .*lib#{name}/)
      end
    end

    it "fails where another library than the one that was named answers malloc" do
      result = table("1k-64B", env: { "MEMINTRO_BENCH_ALLOCATOR" => "/nowhere/libjemalloc.so.2" })
      expect(result.success?).to be(false)
      expect(result.stdout).not_to match(/^1k-64B/)
      expect(result.stderr).to match(%r{libc\S* answers malloc, not /nowhere/libjemalloc.so.2})
    end

    it "names a case that there is not" do
      result = table("1k-64B", "nonsense")
      expect([result.success?, result.stdout]).to eq([false, ""])
      expect(result.stderr).to include("there is no case nonsense")
    end
  end

  it "says what is unknown, and runs nothing" do
    [%w[--columns plain,nonsense], %w[table --allocator nonsense]].each do |arguments|
      result = bench(*arguments)
      expect(result.status.exitstatus).to eq(2)
      expect(result.stderr).to include("nonsense")
      expect(result.stdout).to eq("")
    end
  end
end
