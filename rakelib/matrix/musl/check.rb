# frozen_string_literal: true

# Run by a Ruby that was built with musl. Checks that features which need only Ruby's own functions work, and that
# features which need the hook say so. It is plain Ruby without RSpec, whose libraries need extensions that this Ruby
# does not have. The folder given as argument holds the tool's log and the socket's folder.

require "json"
require "objspace"
require "rbconfig"
require "timeout"

PASSED = []

def check(what)
  Timeout.timeout(600) { yield } ? PASSED << what : abort("FAILED: #{what}")
rescue StandardError => e
  abort "FAILED: #{what}: #{e.full_message(highlight: false)}"
end

# The output of a command, or nil if it fails.
def memintro(*arguments)
  command = [RbConfig.ruby, File.expand_path("../../../exe/memintro", __dir__), *arguments]
  text = IO.popen(["timeout", "600", *command], err: %i[child out], &:read)
  @said = text
  text if $?.success?
end

def refused
  yield
  false
rescue Memintro::UnsupportedError => e
  e.message.include?("glibc")
end

folder = ARGV.fetch(0)
ENV["MEMINTRO_SOCKET_FOLDER"] = File.join(folder, "sockets")

check("this is musl") { RUBY_PLATFORM.include?("musl") && File.read("/proc/self/maps").include?("musl") }
check("glibc is not loaded") { !File.read("/proc/self/maps").match?(%r{/libc\.so\.6|libgcc_s}) }
check("require") { require "memintro" }
check("loading the extension brings no glibc in") { !File.read("/proc/self/maps").match?(%r{/libc\.so\.6|libgcc_s}) }

check("rss") { (Memintro.rss - (File.read("/proc/self/status")[/^VmRSS:\s+(\d+)/, 1].to_i * 1024)).abs < 4_000_000 }
check("peak_rss") { Memintro.peak_rss >= Memintro.rss / 2 }
check("pss, uss, swap, vsize") do
  Memintro.pss.positive? && Memintro.uss.positive? && Memintro.swap && Memintro.vsize > Memintro.rss
end
check("cgroup") { Memintro.respond_to?(:cgroup) && (Memintro.cgroup || true) }

check("iseqs") do
  before = Memintro.iseqs
  Object.class_eval((1..500).map { |i| "def generated_#{i} = #{i} + #{i}\n" }.join, "generated.rb")
  after = Memintro.iseqs
  # Objects that loading left behind may disappear meanwhile.
  (after.count - before.count).between?(400, 510) && after.bytes - before.bytes > 100_000
end
check("iseqs are those that objspace knows") do
  GC.start
  known = ObjectSpace.count_imemo_objects.fetch(:imemo_iseq)
  (Memintro.iseqs.count - known).abs <= known / 20
end
check("top_iseqs") do
  Memintro.top_iseqs.any? { |group| group.name == "generated.rb" && group.count.between?(500, 501) }
end
check("each_iseq") { Memintro.each_iseq.count { |iseq| iseq.path == "generated.rb" }.between?(500, 501) }
check("internals") { Memintro.internals.any? { |row| row.name.to_s.include?("iseq") && row.count > 500 } }
Marker = Class.new
check("histogram") do
  kept = Array.new(1_234) { Marker.new }
  row = Memintro.histogram.find { |one| one.name == "Marker" }
  row.count == kept.size
end
check("occupancy") { Memintro.occupancy.pages.positive? }
check("gc_delta") do
  delta = Memintro.gc_delta { 100_000.times { Object.new } && GC.start }
  delta.objects_allocated >= 100_000 && delta.gc_count >= 1
end
check("snapshot(:all), saved and read, and what grew") do
  before = Memintro.snapshot(:all)
  Object.class_eval((1..300).map { |i| "def later_#{i} = #{i}\n" }.join, "later.rb")
  file = File.join(folder, "snapshot.json")
  Memintro.snapshot(:all).save(file)
  diff = Memintro::Snapshot.load(file) - before
  !before.tracked? && diff.iseqs.any? { |change|
    change.name == "later.rb" && change.count_growth.between?(300, 301)
  } &&
    diff.to_s.include?("later.rb")
end
check("log_every") do
  read, write = IO.pipe
  logging = Memintro.log_every(0.1, Class.new { define_method(:info) { |line| write.puts(line) } }.new)
  line = read.gets
  logging.stop
  line.match?(/^MEMORY\[#{Process.pid}\]: time: .* rss: [\d.]+ MB/)
end

check("start refuses, and says what it needs") { refused { Memintro.start } }
check("start refuses sampled mode") { refused { Memintro.start(mode: :sampled) } }
check("track refuses") { refused { Memintro.track { 1 } } }
check("nothing is tracked") { !Memintro.tracking? && Memintro.mode == :off && !Memintro.preloaded? }
check("untracked runs its block") { Memintro.untracked { 7 } == 7 }
check("the doctor says so, and looks at the rest") do
  doctor = Memintro.doctor
  doctor.origin == :none && doctor.problems.size == 1 && doctor.problems.first.include?("glibc") &&
    doctor.to_s.include?("musl")
end

check("memintro rss -- CMD") { memintro("rss", "--", RbConfig.ruby, "-e", "0")&.match?(/\d/) }
check("memintro diff -- CMD, without tracking") do
  script = 'Object.class_eval((1..200).map { |i| "def a_" + i.to_s + " = 1;" }.join, "there.rb")'
  memintro("diff", "--top", "3", "--", RbConfig.ruby, "-e", script)&.include?("there.rb")
end
check("memintro run says what it needs") do
  memintro("run", "--", RbConfig.ruby, "-e", "0").nil? && @said.include?("needs Linux with glibc")
end
check("a process that listens answers from outside") do
  Memintro.listen(name: "musl-check")
  memintro("histogram", Process.pid.to_s, "--top", "3") && memintro("iseqs", "musl-check")&.include?("generated.rb") &&
    memintro("ps")&.include?("musl-check")
end
check("plot draws") do
  log = File.join(folder, "memory.log")
  line = "MEMORY[1]: time: 2026-01-01 12:00:0%<i>d +0000 rss: 1%<i>d.0 MB, live_objects: 1.0 Million\n"
  File.write(log, Array.new(9) { |i| format(line, i: i) }.join)
  memintro("plot", log, "-o", "#{log}.svg") && File.read("#{log}.svg").include?("<svg")
end

puts "#{RUBY_DESCRIPTION}: #{PASSED.size} checks passed"
