# frozen_string_literal: true

# Throughput of a Puma with two workers of eight threads, as wrk sees it: without memintro, and with the middleware and
# all blocks or a sample of them tracked. In each round they take turns in another order; medians. On a machine that has
# other work to do neither figure says much, the second rather more: requests a second of the workers' own CPU time.
# `bin/bench load [SECONDS [ROUNDS]]`. Needs Debian's puma and wrk.
#
# The application has a heap of an application's size, which Ruby need not let grow. With the 60,000 slots of a program
# of one file, the 12,000 objects that any library brings along make the heap grow a step earlier: Ruby then collects
# half as often, and the measurement was of that (1.3 times the requests, with the library loaded and nothing on).
# Collections a thousand requests stand beside the figures to show that they are alike.

require "etc"
require "net/http"
require "rbconfig"
require "tempfile"
require_relative "../statistics"

ROOT = File.expand_path("../..", __dir__)
SECONDS = Integer(ARGV.fetch(0, 10))
ROUNDS = Integer(ARGV.fetch(1, 5))
MODES = %w[off full sampled].freeze
AIMS = { "full" => 0.85, "sampled" => 0.98 }.freeze
DEADLINE_SECONDS = 60
HEAP = { "LOAD_HELD" => "50000", "RUBY_GC_HEAP_INIT_SLOTS" => "800000" }.freeze

def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

def await(log)
  due = now + DEADLINE_SECONDS
  loop do
    text = File.read(log)
    # Both workers are there.
    port = text[%r{Listening on http://127\.0\.0\.1:(\d+)}, 1] if text.scan(/Worker \d \(PID/).size == 2
    return port if port

    abort "Puma does not listen:\n#{text}" if now > due

    sleep 0.05
  end
end

# Requests, and those a second; whatever wrk found wrong ends the benchmark.
def wrk(port, seconds)
  text = IO.popen(["wrk", "-t1", "-c16", "-d#{seconds}s", "http://127.0.0.1:#{port}/page"], &:read)
  abort "wrk reports errors:\n#{text}" if text.match?(/Socket errors|Non-2xx/)

  [text[/(\d+) requests in/, 1].to_i, text[%r{Requests/sec:\s+([\d.]+)}, 1].to_f]
end

# Requests a second, requests a second of CPU, collections a thousand requests.
def round(mode)
  log = Tempfile.new("memintro-load")
  command = [RbConfig.ruby, "-I#{ROOT}/lib", "-S", "puma", "-w", "2", "-t", "8:8", "--preload",
             "--bind", "tcp://127.0.0.1:0", "#{ROOT}/spec/fixtures/web/load.ru"]
  pid = spawn({ "LOAD_MODE" => mode, "LOAD_REPEAT" => "29", "RACK_ENV" => "production" }.merge(HEAP), *command,
              out: [log.path, "a"], err: %i[child out], chdir: "/tmp")
  port = await(log.path)
  wrk(port, 2)
  collections = workers_collections(port)
  cpu = workers_cpu(pid)
  requests, rate = wrk(port, SECONDS)
  cpu = workers_cpu(pid) - cpu
  [rate, requests / cpu, 1000.0 * (workers_collections(port) - collections) / requests]
ensure
  stop(pid) if pid
end

# By force where Puma waits for itself (docs/rack.md tells when).
def stop(master)
  Process.kill(:TERM, master)
  due = now + DEADLINE_SECONDS
  until Process.wait(master, Process::WNOHANG)
    Process.kill(:KILL, master) if now > due
    sleep 0.05
  end
end

# User and system time so far, in seconds.
def workers_cpu(master)
  File.read("/proc/#{master}/task/#{master}/children").split.sum do |worker|
    # Behind the name, which may hold anything.
    File.read("/proc/#{worker}/stat").rpartition(") ").last.split.values_at(11, 12).sum(&:to_i)
  end.fdiv(Etc.sysconf(Etc::SC_CLK_TCK))
end

# Which worker answers is the kernel's to say, so it is asked until both have.
def workers_collections(port)
  counts = {}
  due = now + DEADLINE_SECONDS
  until counts.size == 2
    abort "One worker answers no more." if now > due

    worker, count = Net::HTTP.get(URI("http://127.0.0.1:#{port}/collections")).split.map { Integer(_1) }
    counts[worker] = count
  end
  counts.values.sum
end

%w[wrk puma].each do |program|
  system("which", program, out: File::NULL) || abort("#{program} is not here: apt-get install #{program}")
end
figures = Hash.new { |hash, mode| hash[mode] = [] }
ROUNDS.times { MODES.shuffle.each { |mode| figures[mode] << round(mode) } }

[["requests/s", 0], ["requests/CPU s", 1], ["GCs/1,000 requests", 2]].each do |unit, index|
  plain = figures["off"].map { |round| round[index] }
  MODES.each do |mode|
    values = figures[mode].map { |round| round[index] }
    ratio = Bench::Statistics.median(values.zip(plain).map { |one, off| one / off })
    aim = AIMS[mode] && index < 2 ? format("  (aim %.2f)", AIMS[mode]) : ""
    puts format("%-8s %8.1f %-18s  %.3f%s", mode, Bench::Statistics.median(values), unit, ratio, aim)
  end
end
