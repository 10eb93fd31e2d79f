# frozen_string_literal: true

# What the middleware costs a request: a bare Rack application alone, with the middleware while nothing is tracked and
# while every block is, and with a call of `ps` instead, as people do without it. CPU time of the thread, system
# included; the median of rounds that take turns. `bin/bench rack`.

$LOAD_PATH.unshift(File.expand_path("../../lib", __dir__))
require "logger"
require "memintro/rack"
require_relative "../statistics"

ROUNDS = 15
REQUESTS = 4_000
BARE = ->(_env) { [200, { "content-type" => "text/plain" }, ["hello"]] }
# As Rails and Rack's own middleware give it: a body that is no Array has to be wrapped.
WRAPPED = ->(_env) { [200, { "content-type" => "text/plain" }, ["hello"].each] }

PS = ->(_env) { `ps -o rss= -p #{Process.pid}` && BARE.call(nil) }

def environment
  { "REQUEST_METHOD" => "GET", "SCRIPT_NAME" => "", "PATH_INFO" => "/posts/1", "HTTP_X_REQUEST_ID" => "0123456789ab" }
end

def request(app)
  _, _, body = app.call(environment)
  body.close if body.respond_to?(:close)
end

# Microseconds of one request.
def measure(app, requests)
  GC.start
  clock = Process::CLOCK_THREAD_CPUTIME_ID
  begun = Process.clock_gettime(clock)
  requests.times { request(app) }
  (Process.clock_gettime(clock) - begun) / requests * 1e6
end

logger = File.open(File::NULL, "a").tap { |io| io.sync = true }
with = ->(app, **options) { Memintro::Middleware.new(app, logger: logger, **options) }
logging = with[BARE, logger: Logger.new(File::NULL)]
columns = {
  "bare application" => [BARE, nil, REQUESTS], "body to be wrapped" => [WRAPPED, nil, REQUESTS],
  "middleware, tracking off" => [with[BARE], false, REQUESTS],
  "middleware, tracking on" => [with[BARE], true, REQUESTS],
  "wrapped body, tracking off" => [with[WRAPPED], false, REQUESTS],
  "wrapped body, tracking on" => [with[WRAPPED], true, REQUESTS],
  "one line in 100, tracking off" => [with[BARE, one_in: 100], false, REQUESTS],
  "through a Logger, tracking off" => [logging, false, REQUESTS],
  "JSON, tracking off" => [with[BARE, format: :json], false, REQUESTS],
  "JSON, tracking on" => [with[BARE, format: :json], true, REQUESTS]
}
figures = Hash.new { |hash, name| hash[name] = [] }
ROUNDS.times do
  columns.each do |name, (app, tracking, requests)|
    tracking ? Memintro.start : Memintro.stop
    figures[name] << measure(app, requests)
  end
  Memintro.stop
  # The shell and ps are processes of their own: wall time is what the request waits.
  begun = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  10.times { request(PS) }
  figures["ps (wall time)"] << ((Process.clock_gettime(Process::CLOCK_MONOTONIC) - begun) / 10 * 1e6)
end

puts format("%-32s %10s %12s", "", "µs", "above bare")
figures.each do |name, values|
  base = name.start_with?("wrapped") ? "body to be wrapped" : "bare application"
  median = Bench::Statistics.median(values)
  puts format("%-32s %10.2f %12.2f", name, median, median - Bench::Statistics.median(figures[base]))
end
