# frozen_string_literal: true

require_relative "../spec_helper"
require "time"
require "tmpdir"

# Memintro.log_every, and what becomes of its lines.
RSpec.describe "Memintro.log_every" do
  one_ruby requires: %w[memintro json logger stringio]

  MEMORY_LINE = /\AMEMORY\[(\d+)\]:\ time:\ (\d{4}-\d\d-\d\d\ \d\d:\d\d:\d\d\ [+-]\d{4})
                 \ rss:\ (\d+\.\d)\ MB,\ live_objects:\ (\d+\.\d{1,3})\ Million/x

  # The last line that a child printed; `eventually` there polls, and the child has a deadline.
  def logging(code, requires: nil, **options)
    helpers = <<~'RUBY'
      require "json"
      require "logger"
      require "stringio"
      def put(answer) = puts(JSON.generate(answer))
      def eventually
        600.times { return true if yield; sleep 0.05 }
        false
      end
    RUBY
    program = helpers + code
    result = if requires
               run_ruby(code: program, requires: requires, **options)
             else
               run_forked(program, chdir: Dir.pwd, **options)
             end
    result.must_succeed
  end

  it "writes the same figures as logfmt or JSON" do
    lines = logging(<<~RUBY).json[:lines]
      put(lines: %i[logfmt json].map { |format|
        out = StringIO.new
        log = Memintro.log_every(10, out, details: true, format: format)
        eventually { out.string.end_with?("\n") }
        log.stop
        out.string
      })
    RUBY
    expect(lines.first.gsub(/\d+(\.\d+)?/, "N"))
      .to eq("MEMORY rss_bytes=N live_objects=N gc_count=N gc_ms=N pid=N time=N-N-NTN:N:NZ\n")
    expect(JSON.parse(lines.last).keys).to eq(%w[event rss_bytes live_objects gc_count gc_ms pid time])
  end

  it "writes the first line immediately and then at regular intervals, with present figures" do
    answer = logging(<<~RUBY).json
      out = StringIO.new
      log = Memintro.log_every(0.01, out)
      eventually { out.string.lines.size >= 3 }
      log.stop
      count = out.string.lines.size
      sleep 0.1
      put(lines: out.string.lines, after: out.string.lines.size - count, pid: Process.pid, rss: Memintro.rss,
          objects: GC.stat(:heap_live_slots), running: log.running?, inspect: log.inspect, now: Time.now.to_i)
    RUBY
    expect(answer).to include(after: 0, running: false, inspect: "#<Memintro::MemoryLog every 0.01 s, stopped>")
    pids, times, rss, objects = answer[:lines].map { |line| MEMORY_LINE.match(line).captures }.transpose
    expect(pids.uniq).to eq([answer[:pid].to_s])
    ages = times.map { |time| answer[:now] - Time.strptime(time, "%Y-%m-%d %H:%M:%S %z").to_i }
    expect(ages).to all(be_between(0, 60))
    expect(rss.map { |mb| mb.to_f * 1_048_576 }).to all(be_within(0.3 * answer[:rss]).of(answer[:rss]))
    expect(objects.map { |million| million.to_f * 1e6 }).to all(be_within(0.5 * answer[:objects]).of(answer[:objects]))
    expect(answer[:lines]).to all(end_with(" Million\n"))
  end

  it "uses the logger that it was given, else Rails', else standard error" do
    result = logging(<<~'RUBY')
      given, rails = StringIO.new, StringIO.new
      module Rails; class << self; attr_accessor :logger; end; end
      Rails.logger = Logger.new(rails)
      logs = [Memintro.log_every(100, Logger.new(given)), Memintro.log_every(100)]
      eventually { given.string != "" && rails.string != "" }
      put([given.string, rails.string])
      Rails.logger = nil
      err = $stderr = StringIO.new
      Memintro.log_every(100)
      eventually { err.string != "" }
      $stderr = STDERR
      warn err.string
    RUBY
    expect(result.json).to all(match(/\AI, \[\S+ #\d+\]  INFO -- : MEMORY\[\d+\]: time: /))
    expect(result.stderr).to match(MEMORY_LINE)
  end

  it "goes on in the rack.logger of the last request, once there was one" do
    skip "no Rack here (Debian's ruby-rack)" unless run_ruby(code: "require 'rack/body_proxy'", requires: []).success?

    result = logging(read_program("memory_log/rack_logger.rb"), requires: %w[memintro memintro/rack])
    expect(result.json).to match(before: true, on: true, still: true, over: true, given: true,
                                 texts: all(match(/ INFO -- : MEMORY\[\d+\]: time: /)))
    expect(result.stderr).to eq("")
  end

  it "adds malloc's and GC's figures if asked, and says where nothing is tracked" do
    answer = logging(<<~RUBY).json
      out = StringIO.new
      Memintro.log_every(0.01, out, details: true)
      eventually { out.string.lines.size >= 2 }
      Memintro.start
      kept = "x" * 20_000_000
      before = out.string.lines.size
      eventually { out.string.lines.size >= before + 2 }
      put([out.string.lines.first, out.string.lines.last])
    RUBY
    expect(answer[0]).to match(/Million, malloc_live: off, gc_count: \d+, gc_time: \d+\.\d ms\n\z/)
    expect(answer[1][/Million, malloc_live: (\d+\.\d) MB, gc_count: \d+, gc_time: \d+\.\d ms\n\z/, 1].to_f)
      .to be_between(19.0, 30.0)
  end

  it "goes on after any exception of the logger, and the program does not notice" do
    result = logging(<<~RUBY)
      calls = 0
      bad = Object.new
      bad.define_singleton_method(:info) { |_| calls += 1; raise [ArgumentError, NotImplementedError, SecurityError, SystemExit][calls % 4], "no" }
      full = Memintro.log_every(0.01, File.open("/dev/full", "w").tap { |file| file.sync = true })
      log = Memintro.log_every(0.01, bad)
      eventually { calls > 8 }
      put(calls: calls > 8, running: log.running? && full.running?)
    RUBY
    expect(result.json).to eq(calls: true, running: true)
    expect(result.stderr.lines.grep(/\Amemintro: a line is lost, and perhaps others: /).size).to eq(2)
    expect(result.stderr.lines.size).to eq(2)
  end

  it "has lines of each forked child's own, and of a daemon" do
    Dir.mktmpdir do |folder|
      logging(<<~RUBY, chdir: folder)
        log = Memintro.log_every(0.01, File.open("log", "a").tap { |file| file.sync = true })
        seen = -> { eventually { File.read("log").include?("MEMORY[\#{Process.pid}]") } ? "seen" : "not seen" }
        seen[]
        File.write("parent", Process.pid)
        Process.wait(fork { File.write("child", "\#{Process.pid} \#{seen[]}") })
        Process.daemon(true, true)
        text = "\#{Process.pid} \#{seen[]}"
        log.stop
        File.write("daemon.tmp", text)
        File.rename("daemon.tmp", "daemon")
      RUBY
      600.times { File.exist?(File.join(folder, "daemon")) ? break : sleep(0.05) }
      texts = %w[child daemon].map { |name| File.read(File.join(folder, name)) }
      expect(texts).to all(match(/\A\d+ seen\z/))
      pids = [File.read(File.join(folder, "parent")), *texts.map { |text| text.split.first }]
      logged = File.readlines(File.join(folder, "log")).map { |line| MEMORY_LINE.match(line)[1] }
      expect(logged.uniq).to match_array(pids)
    end
  end

  it "does not keep the process from ending, nor change how it ends" do
    result = run_ruby(code: "Memintro.log_every(100, $stdout); Memintro.log_every(3600); exit 3")
    expect(result.status.exitstatus).to eq(3)
  end

  it "refuses what makes no sense" do
    answer = logging(<<~RUBY).json
      put([-> { Memintro.log_every(0) }, -> { Memintro.log_every("2") }, -> { Memintro.log_every(2, 5) },
           -> { Memintro.log_every(Float::NAN) }].map { |wrong| wrong.call rescue "\#{$!.class}: \#{$!.message}" })
    RUBY
    expect(answer).to eq(["ArgumentError: seconds is 0; it must be from 0.01 to 86400",
                          "TypeError: seconds is \"2\"; it must be a number of seconds",
                          "TypeError: logger is 5; it must have a method info or write, or be nil",
                          "ArgumentError: seconds is NaN; it must be from 0.01 to 86400"])
  end

  describe "its lines" do
    around { |example| Dir.mktmpdir { |folder| Dir.chdir(folder) { example.run } } }

    def write_log
      logging(<<~RUBY)
        Memintro.start
        kept = [+"x" * 3_000_000]
        file = File.open("log", "a").tap { |io| io.sync = true }
        Memintro.log_every(0.05, Logger.new(file), details: true)
        eventually { kept << "x" * 3_000_000 << Array.new(5_000) { Object.new }; File.readlines("log").size >= 5 }
      RUBY
    end

    it "are what memintro plot draws" do
      write_log
      run_memintro("plot", "log", "-o", "a.svg").must_succeed
      expect(File.read("a.svg")).to match(/RSS, MiB.*live objects, thousand.*malloc live, [MK]iB.*GC time, ms/m)
    end

    it "are what examples/memory.gnuplot draws, both curves" do
      skip "no gnuplot here (gnuplot-nox)" unless system("gnuplot", "--version", out: File::NULL, err: File::NULL)

      write_log
      lines = File.read("log").scan(/MEMORY\[.*/)
      File.write("memory.log", "#{lines.join("\n")}\n")
      ranges = %w[Y Y2].flat_map { |axis| %w[MIN MAX].map { |end_| "GPVAL_DATA_#{axis}_#{end_}" } }
      result = run_command("gnuplot", "-e", "log='memory.log'; picture='memory.png'",
                           File.join(Subprocess::ROOT, "examples/memory.gnuplot"), "-e", "print #{ranges.join(', ')}")
      drawn = [/rss: (\S+) MB/, /live_objects: (\S+) M/].map { |figure| lines.map { |line| line[figure, 1].to_f } }
      expect(result.must_succeed.stderr.lines.last.split.map(&:to_f)).to eq(drawn.flat_map(&:minmax))
      expect(File.binread("memory.png")).to start_with("\x89PNG".b)
    end
  end
end
