# frozen_string_literal: true

# Throughput of a Puma with two workers of eight threads, as wrk sees it: without memintro, and with the middleware and
# all blocks or a sample of them tracked. Rounds take turns; medians. On a machine that has other work to do neither
# figure says much, the second rather more: requests for each second of the servers' own CPU time.
# `bin/bench load [SECONDS [ROUNDS]]`. Needs Debian's puma and wrk.

require "rbconfig"
require "tempfile"
require_relative "../statistics"

ROOT = File.expand_path("../..", __dir__)
SECONDS = Integer(ARGV.fetch(0, 10))
ROUNDS = Integer(ARGV.fetch(1, 5))
MODES = %w[off full sampled].freeze
AIMS = { "full" => 0.85, "sampled" => 0.98 }.freeze
DEADLINE_SECONDS = 60

def await(log)
  due = Process.clock_gettime(Process::CLOCK_MONOTONIC) + DEADLINE_SECONDS
  loop do
    text = File.read(log)
    # Both workers are there.
    port = text[%r{Listening on http://127\.0\.0\.1:(\d+)}, 1] if text.scan(/Worker \d \(PID/).size == 2
    return port if port

    abort "Puma does not listen:\n#{text}" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > due

    sleep 0.05
  end
end

# Requests, and those a second; whatever wrk found wrong ends the benchmark.
def wrk(port, seconds)
  text = IO.popen(["wrk", "-t1", "-c16", "-d#{seconds}s", "http://127.0.0.1:#{port}/page"], &:read)
  abort "wrk reports errors:\n#{text}" if text.match?(/Socket errors|Non-2xx/)

  [text[/(\d+) requests in/, 1].to_i, text[%r{Requests/sec:\s+([\d.]+)}, 1].to_f]
end

def round(mode)
  log = Tempfile.new("memintro-load")
  command = [RbConfig.ruby, "-I#{ROOT}/lib", "-S", "puma", "-w", "2", "-t", "8:8", "--preload",
             "--bind", "tcp://127.0.0.1:0", "#{ROOT}/spec/fixtures/web/load.ru"]
  pid = spawn({ "LOAD_MODE" => mode, "LOAD_REPEAT" => "9", "RACK_ENV" => "production" }, *command,
              out: [log.path, "a"], err: %i[child out], chdir: "/tmp")
  port = await(log.path)
  warm_up, = wrk(port, 2)
  requests, rate = wrk(port, SECONDS)
  before = children_cpu
  Process.kill(:TERM, pid)
  # The master has waited for its workers, whose time is its children's.
  Process.wait(pid)
  pid = nil
  [rate, (warm_up + requests) / (children_cpu - before)]
ensure
  pid && Process.kill(:KILL, pid) && Process.wait(pid)
end

def children_cpu = Process.times.then { |times| times.cutime + times.cstime }

%w[wrk puma].each do |program|
  system("which", program, out: File::NULL) || abort("#{program} is not here: apt-get install #{program}")
end
figures = Hash.new { |hash, mode| hash[mode] = [] }
ROUNDS.times { MODES.each { |mode| figures[mode] << round(mode) } }

[["requests/s", 0], ["requests/CPU s", 1]].each do |unit, index|
  plain = figures["off"].map { |round| round[index] }
  MODES.each do |mode|
    values = figures[mode].map { |round| round[index] }
    ratio = Bench::Statistics.median(values.zip(plain).map { |one, off| one / off })
    aim = AIMS[mode] ? format("  (aim %.2f)", AIMS[mode]) : ""
    puts format("%-8s %8.1f %-14s  %.3f%s", mode, Bench::Statistics.median(values), unit, ratio, aim)
  end
end
