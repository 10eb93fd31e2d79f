# frozen_string_literal: true

require_relative "../spec_helper"
require "tmpdir"

# memintro's lines in a program whose log cannot be written: one message on standard error, and no other effect.
RSpec.describe "a log that cannot be written" do
  told = lambda do |why|
    /\Amemintro: a line is lost, and perhaps others: #{why}\n\z/
  end

  # Requests through the middleware for two seconds; prints how many there were.
  def requests(logger, before: "", after: "", **options)
    run_ruby(requires: %w[logger stringio], flags: ["-W1"], **options, code: <<~RUBY).must_succeed
      #{before}
      $LOAD_PATH.unshift(File.join(#{Dir.tmpdir.dump}, "none"))
      module Rack; class BodyProxy; end; end
      $LOADED_FEATURES << "rack/body_proxy.rb"
      require "memintro/rack"
      app = Memintro::Middleware.new(->(env) { [200, {}, []] }, logger: (log = #{logger}))
      due = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 2
      served = 0
      while Process.clock_gettime(Process::CLOCK_MONOTONIC) < due
        app.call("REQUEST_METHOD" => "GET", "PATH_INFO" => "/x")
        served += 1
        sleep 0.001
      end
      puts served
      #{after}
    RUBY
  end

  {
    "a Logger on a full disk" => ['Logger.new("/dev/full")', 'log writing failed\. No space left on device.*'],
    "a Logger on a closed file" =>
      ['Logger.new(File.open(File::NULL, "w").tap(&:close))', 'log writing failed\. closed stream'],
    "a Logger on a pipe that is not read" =>
      ["Logger.new(IO.pipe.then { |r, w| r.close; w })", 'log writing failed\. Broken pipe'],
    "a full file" => ['File.open("/dev/full", "w").tap { |io| io.sync = true }', "Errno::ENOSPC: .*"],
    "a closed file" => ['File.open(File::NULL, "w").tap(&:close)', "IOError: closed stream"]
  }.each do |name, (logger, why)|
    it "is reported once in two seconds of requests: #{name}" do
      result = requests(logger)
      expect(result.stdout.to_i).to be > 200
      expect(result.stderr).to match(told[why])
      expect(result.stderr.bytesize).to be < 200
    end
  end

  it "may be standard error itself, closed or full" do
    expect(requests("nil", before: "$stderr.close").stdout.to_i).to be > 200
    expect(requests("Logger.new(STDERR)", before: "STDERR.reopen('/dev/full', 'w')").stdout.to_i).to be > 200
  end

  it "leaves the program's own lines their warnings" do
    result = requests('Logger.new("/dev/full")', after: '3.times { log.info("mine") }')
    expect(result.stderr.lines.grep(/\Alog writing failed/).size).to eq(3)
    expect(result.stderr.lines.size).to eq(4)
  end

  it "is heard of once from log_every, whose thread goes on" do
    result = run_ruby(requires: %w[memintro logger], flags: ["-W1"], code: <<~RUBY).must_succeed
      log = Memintro.log_every(0.01, Logger.new("/dev/full"))
      sleep 2
      p log.running?
    RUBY
    expect([result.stdout, result.stderr]).to match(["true\n", told['log writing failed\. No space left on device.*']])
  end

  it "says how many lines are missing when it can be written again, and has every other line" do
    Dir.mktmpdir("memintro-log") do |folder|
      mounted = system("mount", "-t", "tmpfs", "-o", "size=64k", "none", folder, err: File::NULL)
      skip "no small file system can be mounted here" unless mounted

      log = File.join(folder, "memory.log")
      ballast = File.join(folder, "ballast")
      result = run_ruby(requires: %w[memintro logger], flags: ["-W1"], code: <<~RUBY).must_succeed
        file = File.open(#{log.dump}, "a")
        file.sync = true
        log = Memintro.log_every(0.05, Logger.new(file))
        sleep 0.5
        File.open(#{ballast.dump}, "w") { |io| loop { io.syswrite("x" * 512) } } rescue Errno::ENOSPC
        3.times { File.open(#{ballast.dump}, "a") { |io| loop { io.syswrite("x") } } rescue Errno::ENOSPC }
        begin
          loop { file.syswrite("\\n") }
        rescue Errno::ENOSPC
          nil
        end
        sleep 2
        File.unlink(#{ballast.dump})
        sleep 5
        log.stop
      RUBY
      lines = File.read(log).lines.grep(/MEMORY\[/)
      expect(result.stderr).to match(told['log writing failed\. No space left on device.*'])
      counts = lines.filter_map { |line| line[/, dropped_lines: (\d+)$/, 1]&.to_i }
      expect(counts.size).to eq(1)
      # From the first that failed to the first that was tried afterwards: five seconds of twenty lines each.
      expect(counts.sum).to be_between(40, 101)
      expect(lines.size).to be > 20
    ensure
      system("umount", folder, err: File::NULL)
    end
  end
end
