# frozen_string_literal: true

# Throughput of a Puma with two workers of eight threads, as wrk sees it: without memintro, and with the middleware and
# all blocks or a sample of them tracked. Rounds take turns; medians. `bin/bench load [SECONDS [ROUNDS]]`. Needs
# Debian's puma and wrk.

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

# Requests a second; and whatever wrk found wrong ends the benchmark.
def wrk(port, seconds)
  text = IO.popen(["wrk", "-t1", "-c16", "-d#{seconds}s", "http://127.0.0.1:#{port}/page"], &:read)
  abort "wrk reports errors:\n#{text}" if text.match?(/Socket errors|Non-2xx/)

  text[%r{Requests/sec:\s+([\d.]+)}, 1].to_f
end

def round(mode)
  log = Tempfile.new("memintro-load")
  command = [RbConfig.ruby, "-I#{ROOT}/lib", "-S", "puma", "-w", "2", "-t", "8:8", "--preload",
             "--bind", "tcp://127.0.0.1:0", "#{ROOT}/spec/fixtures/web/load.ru"]
  pid = spawn({ "LOAD_MODE" => mode, "RACK_ENV" => "production" }, *command,
              out: [log.path, "a"], err: %i[child out], chdir: "/tmp")
  port = await(log.path)
  wrk(port, 2)
  wrk(port, SECONDS)
ensure
  if pid
    Process.kill(:TERM, pid)
    Process.wait(pid)
  end
end

%w[wrk puma].each do |program|
  system("which", program, out: File::NULL) || abort("#{program} is not here: apt-get install #{program}")
end
figures = Hash.new { |hash, mode| hash[mode] = [] }
ROUNDS.times { MODES.each { |mode| figures[mode] << round(mode) } }

plain = Bench::Statistics.median(figures["off"])
MODES.each do |mode|
  median = Bench::Statistics.median(figures[mode])
  ratios = figures[mode].zip(figures["off"]).map { |one, off| one / off }
  rounds = Bench::Statistics.median(ratios)
  aim = AIMS[mode] ? format("  aim %.2f, median of the rounds' ratios %.3f", AIMS[mode], rounds) : ""
  puts format("%-8s %8.1f requests/s  %.3f%s", mode, median, median / plain, aim)
end
