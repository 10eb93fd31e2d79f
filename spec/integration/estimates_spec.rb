# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/listening"
require "tmpdir"

# A sampled process's figures are estimates in every output: with ~ before and the standard error after them.
RSpec.describe "the mark of estimates", :listening do
  SIZE = /[\d.]+ (?:B|[KMG]iB)/
  # With the range instead, where few blocks were sampled.
  BYTES = /~-?#{SIZE} (?:±#{SIZE}|\(#{SIZE} to #{SIZE}\))/
  COUNT = /~-?[\d,]+ (?:±[\d,]+|\([\d,]+ to [\d,]+\))/
  # 500 blocks of 40,000 bytes live for two collections and longer.
  SAMPLED = <<~RUBY
    Memintro.start(mode: :sampled, sample_bytes: 8_192)
    $kept = Array.new(500) { "x" * 40_000 }
    3.times { GC.start }
  RUBY

  def said(*arguments) = memintro(*arguments).must_succeed.stdout

  def listener(code = SAMPLED)
    start_program("Memintro.listen(name: 'shop')\n#{code}\nputs :ready\nsleep").pid
  end

  it "stands in what mark and stop say" do
    pid = listener
    expect(said("mark", pid)).to match(/ counts growth from now on: live #{BYTES} in #{COUNT} blocks$/)
    expect(said("stop", pid))
      .to match(/ stopped tracking; live #{BYTES} in #{COUNT} blocks, allocated #{BYTES} in #{COUNT} calls$/)
  end

  it "stands in the table of top --older-than, and in its JSON" do
    pid = listener
    text = said("top", pid, "--older-than", "2")
    expect(text).to match(/^ *#{BYTES}  +#{COUNT}  -e:3$/)
      .and match(/^note: Figures with ~ are estimated .* 8,192\./)
    expect(text.lines.drop(3).take_while { |line| line != "\n" }).to all(match(/^ *#{BYTES}  +#{COUNT}  /))
    sites = JSON.parse(said("top", pid, "--older-than", "2", "--json"))["call_sites"]
    site = sites.find { |one| one["name"] == "-e:3" }
    expect(site).to include("estimated" => true, "live_bytes_standard_error" => be_between(1_000, 5_000_000))
  end

  it "is in the answers for a live view" do
    pid = listener
    require "memintro/control/client"
    path = File.join(socket_folder, "#{pid}.sock")
    vitals = Memintro::Control::Client.new(pid, path, patience: 60).ask_json("vitals")
    site = vitals["sites"].find { |one| one["name"] == "-e:3" }
    names = %w[live_bytes growth live_blocks allocations]
    expect(site.keys).to contain_exactly("name", *names, "estimated", *names.map { |name| "#{name}_standard_error" },
                                         "old_bytes", "old_bytes_standard_error")
    expect(site.values_at(*names.map { |name| "#{name}_standard_error" })).to all(be_a(Float).and(be_positive))
    expect(vitals["totals"]).to include("live_bytes_standard_error" => be_positive)
  end

  it "stands in the sum of two sampled workers whose master does not track, and in the table of the processes" do
    program = start_program(<<~RUBY)
      Memintro.listen(name: "shop")
      puts :ready
      2.times { fork { #{SAMPLED.lines.map(&:chomp).join(';')}; puts :done; sleep } }
      sleep
    RUBY
    pid = program.pid
    expect([program.line, program.line]).to eq(%w[done done])
    eventually { sockets.size == 3 }
    workers = sockets.map(&:to_i) - [pid]
    line = ->(report) { JSON.parse(report)["call_sites"].find { |site| site["name"] == "-e:3" } }
    each = workers.map { |worker| line[said("report", worker, "--json")] }
    sum = line[said("report", "shop", "--workers", "--json")]
    %w[live_bytes allocations].each do |name|
      root = Math.sqrt(each.sum { |site| site["#{name}_standard_error"]**2 })
      expect(sum[name]).to be_within(200_000).of(each.sum { |site| site[name] })
      expect(sum["#{name}_standard_error"]).to be_within(0.1 * root).of(root)
    end
    expect(sum["max_lifespan"]).to eq(each.map { |site| site["max_lifespan"] }.max)
    text = said("top", "shop", "--workers")
    expect(text).to match(/^ *#{pid} +\S+ [KM]iB +0 B +0  -e$/)
    workers.each { |worker| expect(text).to match(/^ *#{worker} +\S+ [KM]iB +#{BYTES} +#{COUNT}  -e$/) }
    expect(text).to match(/^live #{BYTES} in #{COUNT} blocks/).and include("sampled mode (8.0 KiB)")
      .and include("Not tracking, of 3: #{pid}.").and include("note: Figures with ~ are estimated")
    expect(text).not_to match(/, not tracking|Tracking is off/)
  end

  it "stands in a snapshot's inspect, and in the rows of a diff in every format" do
    Dir.mktmpdir do |folder|
      answer = run_ruby(code: <<~RUBY, requires: %w[memintro json]).must_succeed.json
        Memintro.start(mode: :sampled, sample_bytes: 8_192)
        first = Memintro.snapshot
        kept = Array.new(500) { "x" * 40_000 }
        second = Memintro.snapshot
        first.save("#{folder}/1.json")
        second.save("#{folder}/2.json")
        exact = Memintro["-e:3"].live_bytes_standard_error
        diff = second - first
        puts JSON.generate(inspect: second.inspect, text: diff.to_s, page: diff.to_html, rows: diff.to_h[:sections],
                           error: exact, short: diff.inspect)
      RUBY
      expect(answer[:inspect]).to match(/malloc live #{BYTES} in #{COUNT} blocks/)
        .and match(/^  call sites: -e:3 #{BYTES} in #{COUNT}[;>]/)
      growth = /~\+[\d.]+ MiB ±[\d.]+ KiB/
      verdict = /^Malloc #{growth} in #{COUNT}, (?:nearly )?all at -e:3\.$/
      expect(answer[:text]).to match(verdict)
        .and match(/^ *#{growth} +~\+[\d,]+ ±[\d,]+ +#{BYTES} +#{COUNT}  -e:3$/)
        .and match(/^ *#{growth} +#{BYTES}  live_bytes$/).and include("note: Malloc was sampled: figures with ~")
      expect(answer[:short]).to match(/Malloc #{growth} in #{COUNT}, (?:nearly )?all at -e:3/)
      expect(answer[:page])
        .to match(%r{<td class="up">#{growth}</td>.*<td>#{BYTES}</td><td>#{COUNT}</td><td title="-e:3">})
      site = answer[:rows][:call_sites].find { |row| row[:name] == "-e:3" }
      # Nothing of that line was there before.
      expect(site).to include(estimated: true, before_standard_error: 0,
                              growth_standard_error: be_within(1).of(answer[:error]))
      expect(answer[:rows][:malloc].map { |row| row[:name] }.grep(/error/)).to eq([])
      saved = run_memintro("diff", "#{folder}/1.json", "#{folder}/2.json").must_succeed.stdout
      expect(saved).to match(verdict)
    end
  end

  it "stands in a trend's series of call sites, and in no others" do
    answer = run_ruby(code: <<~RUBY, requires: %w[memintro json]).must_succeed.json
      Memintro.start(mode: :sampled, sample_bytes: 8_192)
      kept = []
      snapshots = Array.new(5) do
        500.times { kept << "x" * 40_000 }
        Memintro.snapshot
      end
      trend = Memintro::Trend.new(snapshots)
      series = trend.series.find { |one| one.name == "-e:4" }
      puts JSON.generate(text: trend.to_s, page: trend.to_html, row: series.to_h, inspect: series.inspect,
                         ends: snapshots.values_at(0, -1).map { |one| one.call_sites.first.live_bytes_standard_error },
                         others: trend.series.select(&:estimated?).map(&:section).uniq)
    RUBY
    expect(answer[:text]).to match(/^ *~\+[\d.]+ [KMGTP]iB +\S+% +yes +#{BYTES} +#{BYTES}  call site -e:4$/)
    expect(answer[:page]).to match(%r{<title>from ~\S+ MiB to ~\S+ MiB</title>}).and match(/<td>#{BYTES}/)
    first, last = answer[:ends]
    expect(answer[:row]).to include(estimated: true, first_standard_error: be_within(1e-3).of(first),
                                    last_standard_error: be_within(1e-3).of(last),
                                    growth_standard_error: be_within(1e-3).of(Math.hypot(first, last)))
    expect(answer).to include(inspect: match(/-e:4 ~\+\S+ \S+ a minute/), others: ["call_sites"])
  end

  it "stands in what the sampler keeps" do
    answer = run_ruby(code: <<~RUBY, requires: %w[memintro json]).must_succeed.json
      sampler = Memintro::RSSSampler.new
      off = sampler.take
      Memintro.start
      full = sampler.take
      Memintro.start(mode: :sampled, sample_bytes: 8_192)
      kept = Array.new(500) { "x" * 40_000 }
      sample = sampler.take
      points = sampler.points
      puts JSON.generate(off: off.to_h, full: full.estimated?, sample: sample.to_h, inspect: sample.inspect,
                         live: Memintro.totals.live_bytes_standard_error,
                         points: points.map { |point| [point.estimated?, point.to_h.keys.last(2), point.inspect] })
    RUBY
    expect(answer).to include(full: false, inspect: match(/, malloc live #{BYTES}>/))
    expect(answer[:off].keys).to eq(%i[time rss pss live_objects malloc_live_bytes gc_time_ns])
    error = be_within(0.5 * answer[:live]).of(answer[:live])
    expect(answer[:sample]).to include(estimated: true, malloc_live_bytes_standard_error: error)
    expect(answer[:points].map(&:first)).to eq([false, false, true])
    expect(answer[:points].last).to match([true, %w[estimated malloc_live_bytes_standard_error],
                                           match(/malloc live ~\S+ \S+ to ~\S+ \S+ ±\S+ [KM]?i?B>/)])
    expect(answer[:points][1].last).to match(/malloc live [^~±]+>\z/)
  end

  it "stands in the log, and in what is drawn of it" do
    Dir.mktmpdir do |folder|
      Dir.chdir(folder) do
        run_ruby(code: <<~RUBY).must_succeed
          #{SAMPLED}
          log = File.open("periodic.log", "w")
          written = Memintro.log_every(0.01, log, details: true)
          sleep 0.01 until File.read("periodic.log").lines.size > 2
          written.stop
        RUBY
        lines = File.readlines("periodic.log")
        expect(lines).to all(match(/, malloc_live: \d+\.\d MB \(estimate ±\d+\.\d MB\), gc_count: /))
        File.write("fields.log", <<~LOG)
          MEMORY rss_bytes=104857600 malloc_live_bytes=5242880 estimated=true time=2026-01-01T12:00:00.123Z pid=5
          {"event":"MEMORY","rss_bytes":104857600,"malloc_live_bytes":5242880,"malloc_live_bytes_standard_error":9.5,"pid":5,"time":"2026-01-01T12:00:01.123Z"}
        LOG
        title = "malloc live, MiB (~ estimates from a sample)"
        %w[periodic.log fields.log].each do |file|
          run_memintro("plot", file, "-o", "a.svg").must_succeed
          expect(File.read("a.svg")).to include(title)
          expect(run_memintro("plot", file).must_succeed.stdout).to include(title)
        end
      end
    end
  end
end
