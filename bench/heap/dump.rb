# frozen_string_literal: true

# Time of a dump of the heap, and how long the process stands still for it, against ObjectSpace.dump_all.
#
#   ruby -Ilib bench/heap/dump.rb FOLDER [MEGABYTES…]     (or bin/bench heap-dump FOLDER [MEGABYTES…])
#
# For each size of the heap (default 100, 1000 and 3000 MB; RSS of the program) it prints the best of five runs, of
# large heaps of three or two, each into a new file: wall time, processor time of all processes together, how long the
# program stood still, and the size of the file. The first run is often slow, because a virtual machine's memory comes
# from its host page by page.

require "memintro"
require "objspace"

# An object with the references and strings of an application.
class BenchObject
  def initialize(number)
    @number = number
    @name = "object #{number}"
    @nothing = nil
  end
end

KEPT = []

def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

def cpu
  times = Process.times
  times.utime + times.stime + times.cutime + times.cstime
end

Run = Struct.new(:wall, :cpu, :pause_ms, :bytes)

# A dump is told when it is whole; its copy of a large heap takes some more milliseconds to end, which count as
# processor time.
def until_copies_end
  deadline = now + 2
  sleep(0.005) while now < deadline && Dir["/proc/self/task/*/children"].any? { |list| any_in?(list) }
end

def any_in?(list)
  !File.read(list).strip.empty?
rescue SystemCallError
  false # the thread that waited has ended
end

# The block returns the milliseconds that the program stood still, or nil if it did all the while.
def best(times, file = nil)
  runs = Array.new(times) do
    # To replace one costs both: `w` cuts it off, and ext4 begins to write what takes its name.
    File.delete(file) if file && File.exist?(file)
    before = cpu
    begun = now
    pause = yield
    wall = now - begun
    until_copies_end
    Run.new(wall, cpu - before, pause || (wall * 1_000), file ? File.size(file) : 0)
  end
  runs.min_by(&:wall)
end

# The lines are read and thrown away: the copy alone.
def discard
  command = ["/bin/sh", "-c", "exec cat >/dev/null"]
  asking = Memintro::Native::HeapAsking.begin(command, "", false, 600, [], false, false)
  nil until asking.wait(1_000)
  asking.close
  0
end

def dump_all(file)
  File.open(file, "w") { |output| ObjectSpace.dump_all(output: output) }
  nil
end

def dump_all_compressed(program, file)
  IO.popen([program, "-1", "-c"], "w", out: [file, "w", 0o600]) { |output| ObjectSpace.dump_all(output: output) }
  nil
end

def row(name, run, against)
  ratio = against ? "#{(against.wall / run.wall).round(1)}x".rjust(7) : " " * 7
  puts format("  %-22s %7.2f s %7.2f s CPU %s  stands still %8.1f ms  %7.1f MB", name, run.wall, run.cpu, ratio,
              run.pause_ms, run.bytes / 1e6)
end

folder = ARGV.shift || abort("give a folder for the dumps")
sizes = ARGV.empty? ? [100, 1_000, 3_000] : ARGV.map { |text| Integer(text) }
ours, theirs = %w[ours theirs].map { |name| File.join(folder, "#{name}.dump") }
$stdout.sync = true

sizes.each do |megabytes|
  5_000.times { |i| KEPT << { BenchObject.new(i) => [i, "x" * (i % 100)] } } while Memintro.rss < megabytes * 1_000_000
  GC.start
  times = { 0..500 => 5, 501..2_000 => 3 }.find { |range, _| range.cover?(megabytes) }&.last || 2
  puts "#{Memintro.rss / 1_000_000} MB, #{GC.stat(:heap_live_slots)} objects:"
  peer = best(times, theirs) { dump_all(theirs) }
  row("dump_all", peer, nil)
  %w[gzip zstd].each do |program|
    # They take minutes for the largest heaps.
    next if times == 2
    next unless system("command -v #{program} > /dev/null")

    row("dump_all | #{program} -1", best(1, theirs) { dump_all_compressed(program, theirs) }, peer)
  end
  File.delete(theirs)
  %i[plain zstd gzip].each do |kind|
    run = best(times, ours) do
      Memintro.heap_dump(ours, compress: kind, redact: false, seconds: 3_600)[:pause_ms]
    end
    row("heap_dump #{kind}", run, peer)
    File.delete(ours)
  end
  row("copy alone", best(times) { discard }, peer)
end
