# frozen_string_literal: true

# How long the page of many stacks takes: ruby -Ilib bench/flame/open.rb [STACKS] [DEPTH]
# Prints the time that it is written in, its size, and the milliseconds from the beginning of the navigation to the
# first complete drawing in Chromium, five times.

require_relative "../../spec/support/chromium"
require_relative "../../spec/support/saved_report"

stacks, depth = *ARGV.map { |word| Integer(word, 10) }, 100_000, 16
random = Random.new(1)
# Callers are few and leaves are many, as in programs.
frames = Array.new(depth) do |level|
  Array.new(4 * (level + 1)) { |i| ["/app/lib/level_#{level}/file_#{i}.rb", i + 1, "call_#{i}"] }
end
sites = Array.new(stacks) do |id|
  bytes = random.rand(1..100_000)
  row = [id, :ruby, "/app/a.rb", 1, 1, 0, bytes, 0, 0, 0, random.rand(0..bytes)]
  [row, frames.map { |some| some[(random.rand**3 * some.size).to_i] }.reverse]
end
report = SavedReport.read(rows: [], totals: [0] * 7, **SavedReport.whole(sites))

Dir.mktmpdir do |folder|
  file = File.join(folder, "page.html")
  began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  File.write(file, SavedReport.written(report, format: :html))
  puts format("%d stacks, %d frames deep: written in %.1f s, %.1f MB", stacks, depth,
              Process.clock_gettime(Process::CLOCK_MONOTONIC) - began, File.size(file) / 1e6)
  browser = Chromium.new(folder)
  times = Array.new(5) { browser.visit(file) || browser.value("memintro.drawn").round }
  puts "nodes: #{browser.value('memintro.graph.size')}; drawn after #{times.sort.join(', ')} ms"
  puts browser.complaints
  browser.screenshot(ENV["PICTURE"]) if ENV["PICTURE"]
ensure
  browser&.close
end
