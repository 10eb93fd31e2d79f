# frozen_string_literal: true

# How long the page of many stacks takes: ruby -Ilib bench/flame/open.rb [STACKS] [DEPTH]
# Prints the time that Ruby writes it in, its size, and the milliseconds from the beginning of the navigation to the
# first complete drawing in Chromium, five times.

require "memintro"
require "memintro/malloc/call_sites"
require "memintro/report/report"
require "memintro/report/html"
require_relative "../../spec/support/chromium"

stacks, depth = *ARGV.map { |word| Integer(word, 10) }, 100_000, 16
random = Random.new(1)
frame = Struct.new(:path, :line, :label)
# Callers are few and leaves are many, as in programs.
frames = Array.new(depth) do |level|
  Array.new(4 * (level + 1)) { |i| frame.new("/app/lib/level_#{level}/file_#{i}.rb", i + 1, "call_#{i}") }
end
sites = Array.new(stacks) do |id|
  bytes = random.rand(1..100_000)
  row = [id, :ruby, "/app/a.rb", 1, 1, 0, bytes, 0, 0, 0, random.rand(0..bytes)]
  stack = frames.map { |some| some[(random.rand**3 * some.size).to_i] }.reverse
  Memintro::CallSite.new(row).dup.tap { |site| site.define_singleton_method(:stack) { stack } }
end
call_sites = Memintro::CallSites.new(Memintro::Totals.new(*[0] * 7), [], { pid: 0, memintro: Memintro::VERSION })
call_sites.define_singleton_method(:top) { |*, **| sites }

Dir.mktmpdir do |folder|
  file = File.join(folder, "page.html")
  began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  File.open(file, "w") { |io| Memintro::Report::Html.new(call_sites).write(io) }
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
