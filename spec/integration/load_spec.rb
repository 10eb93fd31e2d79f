# frozen_string_literal: true

require_relative "../spec_helper"
require "json"

# Puma with two workers of eight threads, under load with everything on, while workers come and go.
RSpec.describe "under load" do
  before { skip PumaServer.missing if PumaServer.missing }

  application = File.join(Subprocess::ROOT, "spec", "fixtures", "web", "load.ru")
  # The figures count after the first third.
  seconds = Integer(ENV.fetch("MEMINTRO_LOAD_SECONDS", "180"))

  # MEMINTRO_LOAD_MODE=bystander shows what the application does by itself.
  mode = ENV.fetch("MEMINTRO_LOAD_MODE", "full")

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

  it "makes no error and does not grow", :long, deadline_seconds: 900 do
    Dir.mktmpdir("memintro-load") do |folder|
      figures = File.join(folder, "figures")
      # The disk is full all the while.
      # Arenas of threads that have not yet been busy together would be growth of glibc's.
      env = { "LOAD_FIGURES" => figures, "LOAD_LOG" => "/dev/full", "MEMINTRO_PUMA_EVERY" => "2",
              "MALLOC_ARENA_MAX" => "2", "LOAD_MODE" => mode }
      PumaServer.run(application, config: "plugin :memintro\npreload_app!\n", env: env,
                                  arguments: ["-w", "2", "-t", "8:8"]) do |server|
        begun = now
        workers = server.wait(60, "report two workers") do
          server.lines.grep(/process=worker/).to_h { |line| [line[/index=(\d)/, 1], line[/pid=(\d+)/, 1].to_i] }
                .then { |found| found if found.size == 2 }
        end
        clients = Array.new(6) { client(server, begun + seconds) }
        # The first worker is replaced again and again, the second is what is measured.
        replaced = 0
        while now < begun + seconds - 20
          sleep([20, seconds / 6].min)
          current = server.lines.grep(/process=worker index=0/).last[/pid=(\d+)/, 1].to_i
          replaced += 1 if terminated?(current)
        end
        answers = clients.map { |thread| thread.join(seconds + 120)&.value }
        expect(answers.sum(&:first)).to be > seconds
        expect(answers.flat_map(&:last).tally).to eq({})
        expect(replaced).to be >= 3

        rows = File.readlines(figures).map { |line| JSON.parse(line, symbolize_names: true) }
        expect(rows.map { |row| row[:pid] }.uniq.size).to be >= replaced
        steady = rows.select { |row| row[:pid] == workers["1"] && row[:time] > begun + (seconds / 3) }
        expect(steady.size).to be > seconds / 3
        expect(steady).to all(include(sites: 20)) if mode == "full"
        %i[tracker rss].each do |figure|
          low, high = slope_bounds(means(steady, figure))
          puts format("%s: %.1f to %.1f bytes/s over %d s, now %d bytes", figure, low, high, seconds * 2 / 3,
                      steady.last[figure])
          expect(low).to be <= 0, "#{figure} grows by #{low.round} to #{high.round} bytes a second"
        end
        expect(server.log).not_to match(/watching failed|Error|\[BUG\]/i)
      end
    end
  end
end
