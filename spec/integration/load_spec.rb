# frozen_string_literal: true

require_relative "../spec_helper"
require "json"

# Puma with two workers of eight threads, under load with everything on, while workers come and go.
RSpec.describe "under load" do
  before do
    skip PumaServer.missing if PumaServer.missing
    skip "wrk is not installed" unless system("which", "wrk", out: File::NULL)
  end

  application = File.join(Subprocess::ROOT, "spec", "fixtures", "web", "load.ru")
  # Ruby's heap and glibc's take some hundred thousand requests to settle, tracked or not: as fast as can be, by wrk.
  warm_up = Integer(ENV.fetch("MEMINTRO_LOAD_WARM_UP_SECONDS", "420"))
  # Only the last two thirds of the following values count.
  seconds = Integer(ENV.fetch("MEMINTRO_LOAD_SECONDS", "180"))

  # Bounds of the slope by Sen's method: so many of the slopes between all pairs lie on either side of the true one in
  # 95 of 100 cases.
  def slope_bounds(points)
    slopes = points.combination(2).map { |(t1, v1), (t2, v2)| (v2 - v1) / (t2 - t1) }.sort
    size = points.size
    width = 1.96 * Math.sqrt(size * (size - 1) * ((2 * size) + 5) / 18.0)
    [slopes[((slopes.size - width) / 2).floor.clamp(0, slopes.size - 1)],
     slopes[((slopes.size + width) / 2).ceil.clamp(0, slopes.size - 1)]]
  end

  # Neighbouring seconds say the same; means of ten seconds are nearly independent.
  def means(rows, figure)
    rows.group_by { |row| (row[:time] / 10).floor }.values.select { |group| group.size >= 5 }
        .map { |group| [:time, figure].map { |name| group.sum { |row| row[name] } / group.size.to_f } }
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  # False for one that has ended by itself meanwhile.
  def terminated?(pid)
    Process.kill(:TERM, pid) == 1
  rescue Errno::ESRCH
    false
  end

  # One client: a connection for each request. Answers what went wrong.
  def client(server, until_time)
    Thread.new do
      wrong = []
      done = 0
      while now < until_time
        begin
          code = server.get(done.odd? ? "/stream" : "/page").code
          wrong << code unless code == "200"
          done += 1
        rescue SystemCallError, IOError, Timeout::Error => e
          wrong << e.class.name
        end
      end
      [done, wrong]
    end
  end

  # As many requests of both kinds as the server can take, each by a connection of its own, as the clients' are.
  def hurry(server, seconds)
    texts = %w[/page /stream].map { |path|
      command = ["wrk", "-t1", "-c4", "-d#{seconds}s", "-H", "Connection: close", server.url(path)]
      Thread.new { IO.popen(command, &:read) }
    }.map(&:value)
    texts.each { |text| raise "wrk reports errors:\n#{text}" if text.match?(/Socket errors|Non-2xx/) }
    texts.sum { |text| text[/(\d+) requests in/, 1].to_i }
  end

  # Answers what the clients met and what the steady worker measured in those last seconds that count.
  def serve(application, warm_up, seconds, counted, figures)
    # The disk is full all the while. Arenas of threads that were never busy together would be growth of glibc's.
    env = { "LOAD_FIGURES" => figures, "LOAD_LOG" => "/dev/full", "MEMINTRO_PUMA_EVERY" => "2",
            "MALLOC_ARENA_MAX" => "2", "LOAD_MODE" => "full" }
    PumaServer.run(application, config: "plugin :memintro\npreload_app!\n", env: env,
                                arguments: ["-w", "2", "-t", "8:8"]) do |server|
      steady = server.wait("report two workers") { worker(server, 0) && worker(server, 1) }
      warmed = hurry(server, warm_up)
      begun = now
      clients = Array.new(4) { client(server, begun + seconds) }
      # The first worker is replaced repeatedly; the second one is measured.
      replaced = 0
      while now < begun + seconds - 20
        sleep([20, seconds / 12].min)
        replaced += 1 if terminated?(worker(server, 0))
      end
      answers = clients.map { |thread| thread.join(seconds + 120)&.value }
      rows = File.readlines(figures).map { |line| JSON.parse(line, symbolize_names: true) }
      { warmed: warmed, done: answers.sum(&:first), wrong: answers.flat_map(&:last).tally, replaced: replaced,
        pids: rows.map { |row| row[:pid] }.uniq.size, log: server.log,
        rows: rows.select { |row| row[:pid] == steady && row[:time] > begun + seconds - counted } }
    end
  end

  # The process id of the worker that the plugin reported last.
  def worker(server, index) = server.lines.grep(/process=worker index=#{index}/).last&.[](/pid=(\d+)/, 1)&.to_i

  it "makes no error and does not grow", :long, deadline_seconds: 1200 do
    served = Dir.mktmpdir("memintro-load") do |folder|
      serve(application, warm_up, seconds, seconds * 2 / 3, File.join(folder, "figures"))
    end
    expect(served[:done]).to be > seconds
    expect(served[:wrong]).to eq({})
    expect(served[:replaced]).to be >= 3
    expect(served[:pids]).to be >= served[:replaced]
    expect(served[:rows].size).to be > seconds / 2
    expect(served[:log]).not_to match(/watching failed|Error|\[BUG\]/i)
    expect(served[:rows]).to all(include(sites: 20))

    tracker, rss = %i[tracker rss].map { |figure| slope_bounds(means(served[:rows], figure)) }
    puts format("%d requests to settle, %d counted; bytes a second: tracker %.0f to %.0f, RSS %.0f to %.0f",
                served[:warmed], served[:done], *tracker, *rss)
    # Neither grows: the interval of 95% contains 0, or lies below.
    expect([tracker[0], rss[0]]).to all(be <= 0)
  end
end
