# frozen_string_literal: true

# Time of a dump of the heap, and how long the process stands still for it, against ObjectSpace.dump_all.
#
#   ruby -Ilib bench/heap/dump.rb FOLDER [MEGABYTES…]
#
# Prints a row for each size of the heap (default 100 and 1000 MB; RSS of the program), with the best of five runs; of
# large heaps two or one.

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

def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

def best(times)
  Array.new(times) do
    begun = now
    yield
    now - begun
  end.min
end

folder = ARGV.shift || abort("give a folder for the dumps")
sizes = ARGV.empty? ? [100, 1_000] : ARGV.map { |text| Integer(text) }
KEPT = []
COLUMNS = %w[RSS objects dump_all plain zstd gzip null pause].freeze
$stdout.sync = true
puts COLUMNS.map { |name| name.rjust(14) }.join

# The lines are read and thrown away: the copy alone.
def discard
  command = ["/bin/sh", "-c", "exec cat >/dev/null"]
  asking = Memintro::Native::HeapAsking.begin(command, "", false, 600, [], false, false)
  nil until asking.wait(1_000)
  asking.close
end

sizes.each do |megabytes|
  5_000.times { |i| KEPT << { BenchObject.new(i) => [i, "x" * (i % 100)] } } while Memintro.rss < megabytes * 1_000_000
  GC.start
  times = { 0..500 => 5, 501..2_000 => 2 }.find { |range, _| range.cover?(megabytes) }&.last || 1
  theirs = best(times) { File.open(File.join(folder, "theirs"), "w") { |file| ObjectSpace.dump_all(output: file) } }
  pauses = []
  ours = %w[plain zstd gzip].map do |kind|
    best(times) do
      done = Memintro.heap_dump(File.join(folder, "ours"), compress: kind.to_sym, redact: false, seconds: 3_600)
      pauses << done[:pause_ms]
    end
  end
  ours << best(times) { discard }
  cells = ["#{Memintro.rss / 1_000_000} MB", GC.stat(:heap_live_slots).to_s, "#{theirs.round(2)} s",
           *ours.map { |seconds| "#{seconds.round(2)} s #{(theirs / seconds).round(1)}x" }, "#{pauses.min.round(1)} ms"]
  puts cells.map { |cell| cell.rjust(14) }.join
end
