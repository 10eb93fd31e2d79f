# frozen_string_literal: true

require_relative "../spec_helper"

# `memintro rss`, on processes and on commands.
RSpec.describe "memintro rss" do
  FIGURES_OF_RSS = %i[rss_bytes peak_rss_bytes pss_bytes uss_bytes swap_bytes vsize_bytes].freeze

  # A script that ends by itself and has 64 MiB.
  BIG = '$stdout.sync = true; text = "x" * (64 << 20); puts :ready; sleep ARGV[0].to_f; exit 7; text'

  def json_lines(text) = text.lines.map { |line| JSON.parse(line, symbolize_names: true) }

  it "shows a process, in text and as JSON" do
    pid = Process.pid
    text = run_memintro("rss", pid).must_succeed.stdout
    expect(text.lines.first).to eq("process #{pid}\n")
    expect(text.lines.drop(1)).to all(match(/\A  (RSS|peak RSS|PSS|USS|swap|address space) +\d+(\.\d)? [KMG]?i?B\n\z/))
    found = run_memintro("rss", "--format", "json", pid).must_succeed.json
    expect(found.keys).to eq([:pid, :time, :children, *FIGURES_OF_RSS])
    expect(found).to include(pid: pid, children: false)
    expect(found[:rss_bytes]).to be_within(16 << 20).of(File.read("/proc/self/statm").split[1].to_i * 4096)
  end

  it "watches until the process ends" do
    pid = spawn(bare_env, RbConfig.ruby, "-e", BIG, "3", out: File::NULL)
    waiter = Process.detach(pid)
    result = run_memintro("rss", pid, "--watch", "0.2", "--children", "--format", "json", deadline_seconds: 60)
    lines = json_lines(result.must_succeed.stdout)
    expect(waiter.join(60)).to be(waiter)
    expect(lines.size).to be >= 2
    expect(lines.map { |line| line.values_at(:pid, :children) }.uniq).to eq([[pid, true]])
  end

  it "runs a command, leaves its streams and status alone, and shows what was last seen" do
    result = run_memintro("rss", "--format", "json", "--", RbConfig.ruby, "-e", BIG, "2", deadline_seconds: 60)
    expect([result.status.exitstatus, result.stdout]).to eq([7, "ready\n"])
    found = json_lines(result.stderr)
    expect(found.size).to eq(1)
    expect(found.first[:rss_bytes]).to be > 64 << 20
  end

  it "watches a command, with titles once" do
    result = run_memintro("rss", "--watch", "0.3", "--", RbConfig.ruby, "-e", BIG, "2", deadline_seconds: 60)
    expect(result.status.exitstatus).to eq(7)
    expect(result.stderr.lines.first.split(/\s{2,}/).drop(1).map(&:chomp)).to include("time", "RSS", "PSS")
    expect(result.stderr.lines.drop(1)).to all(match(/\A *\d\d:\d\d:\d\d( +\S+ \S+){6}\n\z/))
    expect(result.stderr.lines.size).to be >= 3
  end

  it "passes a deadly signal's status on" do
    result = run_memintro("rss", "--", "sh", "-c", "sleep 0.5; kill -TERM $$", deadline_seconds: 60)
    expect(result.status.exitstatus).to eq(143)
  end

  it "says what is wrong, and how it is right" do
    { %w[rss] => [2, /give one PID, or -- CMD/], %w[rss ruby] => [2, /"ruby" is not one process id; .* rss -- ruby/],
      %w[rss 0] => [2, /not one process id/], %w[rss 9999999999] => [2, /pid is 9999999999; it must be/],
      %w[rss 4194304] => [1, /there is no process 4194304/], %w[rss --watch x 1] => [2, /--watch is "x"; it must be/],
      %w[rss --format xml 1] => [2, /--format is "xml"; it must be text or json/],
      %w[rss 1 -- true] => [2, /either a PID or -- CMD/],
      %w[rss -- /no/such] => [127, /command not found/] }.each do |arguments, (status, message)|
      result = run_memintro(*arguments)
      expect([result.status.exitstatus, result.stderr]).to match([status, message])
    end
  end
end
