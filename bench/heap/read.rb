# frozen_string_literal: true

# Time and memory for reading a heap dump, against heapy where it can be had.
#
#   ruby -Ilib bench/heap/read.rb FOLDER [MEGABYTES] [LIB]     (or bin/bench heap-read FOLDER …)
#
# Writes a dump of so many megabytes of lines (default 1000) into FOLDER, of a heap whose objects are tracked, so that
# it has lines and generations. Then it runs each question three times in turns, and prints the best wall time, its CPU
# time and the peak of its RSS. LIB: the folder `lib` of a checkout of heapy, unless it is installed as a gem.

require "memintro"
require "memintro/process/memory"

# Linked to others, as the objects of an application are.
class BenchNode
  def initialize(number, before)
    @number = number
    @before = before
    @name = "object #{number}"
    @tags = [number, { id: @name }]
  end
end

folder = ARGV.shift || abort("give a folder for the dump")
megabytes = Integer(ARGV.shift || 1_000)
library = ARGV.shift
file = File.join(folder, "read.ndjson")
# Bytes of the lines of a node and what it holds, about.
NODE_BYTES = 1_350

unless File.exist?(file)
  pid = fork do
    Memintro.start(objects: true)
    kept = []
    (megabytes * 1_000_000 / NODE_BYTES).times { |number| kept << BenchNode.new(number, kept.sample) }
    p Memintro.heap_dump(file, seconds: 3_600)
  end
  Process.wait(pid)
end

# @return [Array<Float>] wall and CPU seconds, bytes of peak RSS
def measured(command)
  reader, writer = IO.pipe
  pid = fork do
    reader.close
    before = Process.times
    begun = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    system(*command, out: File::NULL, err: File::NULL) || abort("#{command.inspect} failed")
    took = Process.clock_gettime(Process::CLOCK_MONOTONIC) - begun
    after = Process.times
    writer.puts([took, after.cutime + after.cstime - before.cutime - before.cstime,
                 Memintro::ProcessMemory.waited_peak_rss].join(" "))
  end
  writer.close
  Process.wait(pid)
  reader.read.split.map(&:to_f)
end

tool = Memintro::Paths.tool
commands = { "generations" => [tool, "heap", "generations", file], "histo" => [tool, "heap", "histo", file],
             "holders" => [tool, "heap", "holders", "--class=BenchNode", file], "top" => [tool, "heap", "top", file],
             "dominators" => [tool, "heap", "dominators", file] }
heapy = [RbConfig.ruby, *("-I#{library}" if library), "-e",
         "#{"gem 'heapy';" unless library} require 'heapy'; Heapy::Analyzer.new(ARGV[0]).analyze", file]
commands["heapy"] = heapy if library || Gem::Specification.find_all_by_name("heapy").any?
results = Hash.new { |all, name| all[name] = [] }
3.times { commands.each { |name, command| results[name] << measured(command) } }
lines, references = 0, 0
File.foreach(file) do |line|
  lines += 1
  references += line[/"references":\[([^\]]*)/, 1].to_s.count("x")
end
puts "#{(File.size(file) / 1e6).round} MB, #{lines} objects, #{references} references"
theirs = results["heapy"].map(&:first).min
results.each do |name, runs|
  wall, cpu, peak = runs.min_by(&:first)
  ratio = theirs && name != "heapy" ? "  #{(theirs / wall).round(1)} times as fast as heapy" : ""
  puts format("%-12s %7.2f s  %7.2f s CPU  %6d MB peak%s", name, wall, cpu, peak / 1e6, ratio)
end
