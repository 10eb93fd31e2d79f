# frozen_string_literal: true

# A Puma of two workers with eight threads each, as Bench::ServerLoad drives it: JSON, ERB, and a cache that turns over.
# A request takes about three milliseconds of processor time and 5,700 calls of malloc. The process keeps 50,000 rows,
# as applications keep something. It runs until it is told to end.
#
# /figures is for the one who measures: the worker's process, its minor and major collections, and the allocations that
# the tool saw in it, if it can say.

require "erb"
require "json"
require "puma"
require "puma/configuration"
require "puma/launcher"
require "zlib"

PAGES = Integer(ENV.fetch("BENCH_PAGES", "29"))
VIEW = Module.new { extend self }
ERB.new(<<~HTML).def_method(VIEW, "page(rows)")
  <ul><% rows.each do |row| %><li><%= ERB::Util.h(row["name"]) %>: <%= row["value"] %></li><% end %></ul>
HTML
DOCUMENT = JSON.generate(Array.new(60) do |i|
  { name: "row <#{i}> of sixty on this page", value: i * 7, tags: %w[a b c], note: "some words that no slot can hold" }
end)
HELD = Array.new(50_000) { |i| { "name" => "row #{i}", "value" => i.to_s } }
CACHE = Array.new(20) { |key| [key, JSON.parse(DOCUMENT)] }.to_h

def figures
  seen = defined?(Memintro.tracking?) && Memintro.tracking? ? Memintro.totals.allocations : 0
  [Process.pid, *GC.stat.values_at(:minor_gc_count, :major_gc_count), seen].join(" ")
end

application = lambda do |env|
  next [200, { "content-type" => "text/plain" }, [figures]] if env["PATH_INFO"] == "/figures"

  rows = nil
  PAGES.times { VIEW.page(rows = JSON.parse(DOCUMENT)) }
  CACHE[rand(CACHE.size)] = rows
  [200, { "content-type" => "text/html" }, [VIEW.page(rows)]]
end
application = Program.middleware.call(application) if Program.middleware

configuration = Puma::Configuration.new do |config|
  config.bind "tcp://127.0.0.1:0"
  config.workers 2
  config.threads 8, 8
  config.preload_app!
  config.environment "production"
  config.app application
end
launcher = Puma::Launcher.new(configuration)
launcher.events.on_booted { File.write("port", launcher.connected_ports.first) }
launcher.run
Program.result = Zlib.crc32(VIEW.page(JSON.parse(DOCUMENT)))
