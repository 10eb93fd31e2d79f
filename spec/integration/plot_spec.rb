# frozen_string_literal: true

require_relative "../spec_helper"
require "fileutils"
require "tmpdir"
require "zlib"

# `memintro plot`, from logs as they are to plots.
RSpec.describe "memintro plot" do
  around { |example| Dir.mktmpdir("memintro plot") { |folder| Dir.chdir(folder) { example.run } } }

  # Two processes of Memintro.log_every, each with its own curve.
  def periodic(count = 20, details: false)
    Array.new(count) do |i|
      line = format("MEMORY[%<pid>d]: time: 2026-01-01 12:00:%<at>02d +0000 rss: %<rss>.1f MB, " \
                    "live_objects: 1.2 Million", pid: 100 + (i % 2), at: i, rss: 50 + i)
      line << ", malloc_live: 12.5 MB, gc_count: #{i}, gc_time: 1.5 ms" if details
      "#{line}\n"
    end.join
  end

  def requests(count = 20)
    Array.new(count) do |i|
      "I, [2026-01-01T12:01:#{format('%02d', i)}.250000 #77]  INFO -- : [abc] MEMORY method=GET path=\"/a b\" " \
        "status=200 rss_bytes=#{(i + 1) * 1_048_576} process_objects=9 process_gc_ms=0.5 in_flight=1 pid=77 tid=78\n"
    end.join
  end

  # Colours of the lines that are drawn in the SVG file, each once.
  def curves(file)
    File.read(file).scan(/<polyline[^>]*stroke="(#[0-9A-F]+)"/i).flatten.uniq - %w[#E2E2E2 #969696]
  end

  it "draws a curve for each process, and the axes with their units" do
    File.write("a.log", "noise\n#{periodic}")
    expect(run_memintro("plot", "a.log", "-o", "a.svg").must_succeed.stderr)
      .to eq("memintro: a.svg: 20 lines of 2 processes, 1 other line skipped\n")
    svg = File.read("a.svg")
    expect(svg).to include("pid 100").and include("pid 101").and include("RSS, MiB")
      .and include("live objects, million")
    expect(svg).to include("1 Jan 2026 12:00:00 – 12:00:19 UTC").and include("12:00:10")
    expect(svg).not_to include("malloc live")
    expect(curves("a.svg").size).to eq(2)
  end

  it "draws the 1,000 processes with the most lines, in little memory, and says how many it leaves out" do
    File.open("a.log", "w") do |log|
      100_000.times do |i|
        log << "MEMORY[#{i + 10}]: time: 2026-01-01 12:#{format('%02d', i / 2_000)}:00 +0000 rss: 50.0 MB\n"
        log << periodic(2) if (i % 1_000).zero?
      end
    end
    # Each process took 12 KB in the terminal's plot.
    limited = ["sh", "-c", "ulimit -v 500000; exec \"$@\"", "sh", RbConfig.ruby, Subprocess::EXE]
    result = run_command(*limited, "plot", "a.log", "-o", "a.txt").must_succeed
    expect(result.stderr).to eq("memintro: a.txt: 1,200 lines of 1,000 processes, 99,000 processes with fewer lines " \
                                "left out (99,000 lines), for at most 1,000 are drawn\n")
    expect(File.read("a.txt")).to include("pid 100").and include("pid 101")
  end

  it "says of lines that have it off that nothing was tracked, and draws no curve for it" do
    File.write("a.log", periodic(details: true).gsub("malloc_live: 12.5 MB", "malloc_live: off"))
    expect(run_memintro("plot", "a.log", "-o", "a.svg").must_succeed.stderr)
      .to eq("memintro: a.svg: 20 lines of 2 processes, malloc's bytes unknown in 20 lines, for nothing was tracked\n")
    expect(File.read("a.svg")).to include("GC time, ms")
    expect(File.read("a.svg")).not_to include("malloc live")
  end

  it "draws a line where its logger wrote it, not up to a second before" do
    moments = %w[00.900000 01.950000 02.990000]
    lines = moments.map do |moment|
      "I, [2026-01-01T13:00:#{moment} #9]  INFO -- : " \
        "MEMORY[9]: time: 2026-01-01 12:00:#{moment[0, 2]} +0000 rss: 5.0 MB\n"
    end
    drawn = ->(text) { run_memintro("plot", "-", "-o", "-", "--format", "svg", stdin: text).must_succeed.stdout }
    precise = moments.map { |moment| "MEMORY rss_bytes=5242880 pid=9 time=2026-01-01T12:00:#{moment}Z\n" }
    expect(drawn[lines.join]).to eq(drawn[precise.join])
    expect(drawn[lines.join]).not_to eq(drawn[lines.join.gsub(/^.* : /, "")])
  end

  it "draws what the middleware logs, with the time and process of the logger" do
    File.write("a.log", requests)
    run_memintro("plot", "a.log", "-o", "a.svg").must_succeed
    expect(File.read("a.svg")).to include("pid 77").and include("GC time, ms").and include("12:01:10")
  end

  it "never draws over a log, by any of its names" do
    File.write("a.log", periodic)
    File.symlink("a.log", "link.txt")
    File.link("a.log", "hard.svg")
    { ["a.log", "-o", "a.log", "--format", "svg"] => "a.log is a.log", ["a.log", "-o", "./link.txt"] => "./link.txt is",
      ["b.log", "a.log", "-o", "hard.svg"] => "hard.svg is a.log",
      ["a.log", "--follow", "-o", "hard.svg"] => "hard.svg is a.log" }.each do |arguments, named|
      result = run_memintro("plot", *arguments)
      expect([result.status.exitstatus, result.stdout]).to eq([1, ""])
      expect(result.stderr).to match(/\Amemintro: --output #{named}.*, the log itself, and the plot would replace/)
    end
    result = run_memintro("plot", "-", "-o", "hard.svg", in: "a.log")
    expect(result.stderr).to start_with("memintro: --output hard.svg is standard input, the log itself")
    expect(File.read("a.log")).to eq(periodic)
    # An earlier plot is no log.
    2.times { run_memintro("plot", "a.log", "-o", "a.svg").must_succeed }
  end

  it "draws JSON lines" do
    lines = Array.new(3) do |i|
      JSON.generate(event: "MEMORY", path: "/", rss_bytes: i * 1_048_576, pid: 5, time: "2026-01-01T12:00:0#{i}.000Z")
    end
    result = run_memintro("plot", "-", "-o", "-", "--format", "svg", stdin: lines.join("\n")).must_succeed
    expect(result.stdout).to start_with("<svg").and include("pid 5")
  end

  [":logfmt", ":json"].each do |format|
    it "draws what the middleware writes where no logger puts a time in front: format #{format}" do
      found = run_ruby(code: "require 'rack/body_proxy'", requires: [])
      skip "no Rack here (Debian's ruby-rack)" unless found.success?
      log = run_ruby(code: <<~RUBY, requires: ["memintro/rack"]).must_succeed
        app = Memintro::Middleware.new(->(_env) { [200, {}, ["hello"]] }, format: #{format})
        3.times { sleep 0.01; app.call({ "REQUEST_METHOD" => "GET", "PATH_INFO" => "/posts" }) }
        print Process.pid
      RUBY
      drawn = run_memintro("plot", "-", "-o", "a.svg", stdin: log.stderr).must_succeed
      expect(drawn.stderr).to eq("memintro: a.svg: 3 lines of 1 process\n")
      expect(File.read("a.svg")).to include("pid #{log.stdout}")
    end
  end

  it "reads both formats, gzip and standard input together, and names the files then" do
    Zlib::GzipWriter.open("a.log.gz") { |file| file.write(periodic(details: true)) }
    File.write("b.log", requests)
    run_memintro("plot", "a.log.gz", "b.log", "-", "-o", "a.html", stdin: periodic).must_succeed
    expect(File.read("a.html")).to include("a.log.gz pid 100").and include("b.log pid 77").and include("- pid 101")
      .and include("malloc live, MiB")
  end

  it "draws a PNG with pixels in the curves' colours" do
    File.write("a.log", periodic)
    run_memintro("plot", "a.log", "-o", "a.png").must_succeed
    png = File.binread("a.png")
    expect(png).to start_with("\x89PNG\r\n\x1A\n".b)
    expect(png[16, 8].unpack("N2")).to match([be >= 1_000, be >= 400])
    expect(png.bytesize).to be > 5_000
  end

  it "draws in the terminal without an output file, without colours where that is none" do
    File.write("a.log", periodic)
    result = run_memintro("plot", "a.log").must_succeed
    expect(result.stdout).to include("RSS, MiB").and include("12:00:19").and match(/[\u2801-\u28FF]/)
    expect(result.stdout).not_to include("\e")
    expect(result.stderr).to eq("20 lines of 2 processes\n")
  end

  it "says why there is no curve, and leaves no file" do
    File.write("a.log", "one\ntwo\n")
    File.write("b.log", "MEMORY rss_bytes=5 pid=1\n")
    failures = [%w[a.log], %w[b.log], %w[none.log], %w[.]].map { |files| run_memintro("plot", *files, "-o", "a.svg") }
    expect(failures.map { |result| result.status.exitstatus }).to eq([1, 1, 1, 1])
    none, timeless, missing, folder = failures.map(&:stderr)
    expect(none).to eq("memintro: no curve: 2 lines, and none is a MEMORY line (of Memintro.log_every or " \
                       "Memintro::Middleware)\n")
    expect(timeless).to match(/\Amemintro: no curve: 1 MEMORY lines?, but none tells its time/)
    expect(missing).to eq("memintro: none.log: No such file or directory\n")
    expect(folder).to eq("memintro: .: is a folder; give the log files in it\n")
    expect(Dir.children(".")).to contain_exactly("a.log", "b.log")
  end

  it "leaves the old plot where the new one cannot be written" do
    File.write("a.log", periodic)
    File.write("a.svg", "old")
    # Files of this size at most, as on a full disk.
    result = run_command("bash", "-c", "trap '' XFSZ; ulimit -f 4; exec \"$@\"", "-", RbConfig.ruby, Subprocess::EXE,
                         "plot", "a.log", "-o", "a.svg")
    expect([result.status.exitstatus, result.stderr]).to match([1, /\Amemintro: a.svg: File too large/])
    expect(Dir.children(".")).to contain_exactly("a.log", "a.svg")
    expect(File.read("a.svg")).to eq("old")
    full = run_command("bash", "-c", "exec \"$@\" > /dev/full", "-", RbConfig.ruby, Subprocess::EXE, "plot", "a.log")
    expect([full.status.exitstatus, full.stderr]).to match([1, /No space left on device/])
  end

  it "takes a closed pipe as success" do
    File.write("a.log", periodic)
    result = run_command("bash", "-c", "set -o pipefail; \"$@\" 2>/dev/null | head -1", "-", RbConfig.ruby,
                         Subprocess::EXE, "plot", "a.log")
    expect(result.must_succeed.stdout.lines.size).to eq(1)
  end

  describe "--follow" do
    def until_true(seconds = 60)
      deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
      until yield
        raise "not within #{seconds} s" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline

        sleep 0.05
      end
    end

    def shows?(*texts)
      File.exist?("a.svg") && texts.all? { |text| File.read("a.svg").include?(text) }
    end

    def following
      pid = spawn(bare_env, RbConfig.ruby, Subprocess::EXE, "plot", "--follow", "a.log", "-o", "a.svg",
                  err: "errors", pgroup: true)
      yield
      expect(File.read("errors").lines - ["memintro: waiting for the first MEMORY line\n"]).to eq([])
    ensure
      Process.kill(:KILL, -pid)
      Process.wait(pid)
    end

    it "draws anew in a terminal, over the plot before" do
      require_relative "../support/terminal"
      File.write("a.log", periodic(2))
      Terminal.open(RbConfig.ruby, Subprocess::EXE, "plot", "--follow", "a.log", rows: 40) do |terminal|
        terminal.wait_for("RSS, MiB").wait_for("pid 101").wait_for(/[\u2801-\u28FF]/)
        expect(terminal).not_to be_shows("pid 200")
        File.write("a.log", periodic(2).gsub("MEMORY[10", "MEMORY[20"), mode: "a")
        terminal.wait_for("pid 200").wait_for("pid 100")
        expect(terminal.screen.scan("RSS, MiB").size).to eq(1)
      end
    end

    it "draws anew as lines come, across rotation and truncation" do
      following do
        until_true { File.read("errors").include?("waiting for the first MEMORY line") }
        File.write("a.log", periodic(2))
        until_true { shows?("pid 100", "pid 101") }
        File.write("a.log", periodic(2).gsub("MEMORY[10", "MEMORY[20"), mode: "a")
        until_true { shows?("pid 200", "pid 100") }
        File.write("a.log", periodic(1).sub("MEMORY[100", "MEMORY[300"))
        until_true { shows?("pid 300", "pid 200", "pid 100") }
        File.rename("a.log", "a.log.1")
        File.write("a.log.1", periodic(1).sub("MEMORY[100", "MEMORY[400"), mode: "a")
        File.write("a.log", periodic(1).sub("MEMORY[100", "MEMORY[500"))
        until_true { shows?("pid 400", "pid 500", "pid 300", "pid 200", "pid 100") }
      end
    end
  end
end
