# frozen_string_literal: true

require "time"
require_relative "../spec_helper"
require_relative "../support/listening"

# The hunt in real processes, whose time passes faster. spec/unit/hunt_spec.rb has its statistics.
RSpec.describe "Memintro.hunt", :listening do
  mib = 1 << 20
  describe "of examples/leaks" do
    before(:all) do
      found = run_ruby(code: "require 'rack/body_proxy'", requires: [])
      @reason = "no Rack here (Debian's ruby-rack)" unless found.success?
    end

    before { skip @reason if @reason }

    def found(page, minutes: 10)
      told = run_ruby("hunt_leaks.rb", page, minutes, requires: %w[memintro stringio]).must_succeed.json
      expect(told).to include(tracking: false)
      expect(told[:findings].size).to eq(1), told.to_s
      expect(told[:log].lines.size).to eq(1)
      expect(told[:minutes]).to be <= minutes
      expect(told[:hunt]).to include(errors: 0, investigations: be_between(1, 2))
      # On a machine that is busy, a look may take longer, but not the processor time of 1.2 s.
      expect(told[:hunt][:cpu_share]).to be <= 0.002
      told[:findings].first
    end

    def example(file) = File.join(Subprocess::ROOT, "examples", "leaks", file)

    it "finds the memory of the C library at its line, which nothing points to" do
      expect(found("thumbnails"))
        .to include(kind: "malloc_native", what: "memory that no Ruby object owns",
                    site: "#{example('thumbnails.rb')}:8", bytes_per_minute: be_within(0.5 * mib).of(1.1 * mib),
                    verdict: "leaked", held_by: nil)
    end

    it "finds the instruction sequences at the line that evaluates" do
      finding = found("reports")
      expect(finding).to include(kind: "iseqs", what: "compiled code of report.template",
                                 site: "#{example('reports.rb')}:14", advice: /compile each text once/)
      expect(finding[:bytes_per_minute_interval].first).to be > 0.4 * mib
      expect(finding[:stack]).to include(a_string_starting_with("#{example('shop.rb')}:14"))
    end

    it "finds the cache at the line that makes its results" do
      finding = found("search")
      expect(finding).to include(kind: "ruby_objects", what: /\A(?:Search::Result|String|Array)\z/,
                                 site: match(/\A#{Regexp.escape(example('search.rb'))}:(?:9|10)\z/))
      expect(finding[:held_by]).to match(/Array\[.*Hash\[|Search::Result/)
    end

    it "finds the closure that holds a body, and who holds the closure" do
      expect(found("upload"))
        .to include(kind: "ruby_objects", what: "String", site: "#{example('events.rb')}:8",
                    bytes_per_minute: be_within(0.4 * mib).of(1.15 * mib),
                    held_by: /\Alocal body of .* ← block at \S+events\.rb:11 \(locals\) ← Events::SUBSCRIBERS /)
    end

    def at(text) = (path = File.join(Subprocess::SCRIPTS, "hunt_leaks.rb")) && "#{path}:#{line(path, text)}"
    def line(path, text) = File.readlines(path).index { |one| one.include?(text) } + 1

    it "finds the stacks of fibers that are kept, counts what is resident of them, and names who holds the fibers" do
      # Ruby adds room for many fibers in one step, so steps differ.
      finding = found("lists", minutes: 20)
      expect(finding).to include(kind: "fiber_stacks", what: "memory of fibers", site: at("    list.next"),
                                 objects: be_between(1_500, 7_400), sentence: /: stacks of [\d,]+ fibers\z/,
                                 held_by: /Enumerator.* ← Lists#@begun/, advice: /let go of it/)
      # Each has 8 to 20 KiB resident, of some hundreds that are reserved.
      expect(finding[:bytes_per_minute]).to be_between(360 * 8_192, 360 * 28_672)
    end

    it "names the same holder of memory of a C library in each run" do
      both = Array.new(2) { Thread.new { found("streams", minutes: 20) } }.map(&:value)
      expect(both).to all(include(kind: "malloc_owned", site: at("Zlib::Deflate.new"), verdict: "anchored",
                                  what: "memory of C code that Zlib::Deflate objects own"))
      expect(both.map { |one| one[:held_by] }.uniq).to match([start_with("Zlib::Deflate ← Streams\#@open (Array) ← ")])
    end

    it "finds that malloc keeps more and more free memory, and names no line" do
      expect(found("fragments"))
        .to include(kind: "malloc_free", site: nil, held_by: nil, advice: /Memintro.trim gives back what can be/)
    end
  end

  it "counts objects that have outlived collections, and no others" do
    told = run_ruby(code: <<~RUBY, requires: %w[memintro json]).must_succeed.json
      Thing = Class.new
      Memintro.snapshot(:classes)
      old = Array.new(5_000) { Thing.new }
      4.times { GC.start }
      GC.disable
      young = Array.new(700) { Thing.new }
      counts = [[], [:old]].map do |more|
        survey = Memintro::HeapSurvey.take([:classes, *more], GC.stat)
        rows = []
        survey.rows(:classes) { |slice| rows.concat(slice) }
        rows.find { |name, *| name == "Thing" }[1]
      end
      puts JSON.generate(counts: counts, kept: old.size + young.size)
    RUBY
    expect(told).to eq(counts: [5_700, 5_000], kept: 5_700)
  end

  # spec/unit/hunt_spec.rb has days of made-up figures.
  { "four hours" => [240, {}], "a day" => [1_440, { long: true }] }.each do |time, (minutes, tags)|
    it "finds nothing in #{time} of a real process that does not leak", **tags do
      told = run_ruby("hunt_leaks.rb", "none", minutes, requires: %w[memintro stringio],
                                                        env: { "STEP" => "60" }).must_succeed.json
      expect(told).to include(findings: [], log: "", tracking: false, minutes: be >= minutes)
      expect(told[:hunt]).to include(errors: 0, looks: be > minutes * 0.9)
    end
  end

  describe "in a Puma of two workers, whose hunt was begun before they were forked" do
    before { skip PumaServer.missing if PumaServer.missing }

    rackup = File.join(Subprocess::ROOT, "spec", "fixtures", "web", "hunted.ru")

    # The answer of each worker, after requests until both have a finding, or half an hour is over.
    def workers(server)
      told = {}
      until told.size == 2 && told.values.all? { |one| one["findings"].any? || one["minutes"] >= 30 }
        clients = Array.new(2) { Thread.new { Array.new(5) { JSON.parse(server.get("/work").body) } } }
        clients.flat_map(&:value).each { |one| told[one["pid"]] = one }
      end
      told.values
    end

    it "finds a leak of a megabyte a minute among churn, in each worker within ten minutes, at its line" do
      PumaServer.run(rackup, config: "preload_app!\n", arguments: ["-w", "2", "-t", "2:2"]) do |server|
        found = workers(server)
        expect(found.map { |one| one["findings"].size }).to eq([1, 1]), server.log
        times = found.map { |one| Time.parse(one["findings"].first["found_at"]) - Time.at(1_800_000_000) }
        expect(times).to all(be <= 600)
        found.each do |one|
          # It may look into something else by then.
          expect(one).to include("tracking" => one["state"] == "investigating", "errors" => 0)
          finding = one["findings"].first
          expect(finding["site"]).to end_with(one["line"])
          expect(finding).to include("kind" => "ruby_objects", "what" => "String", "pid" => one["pid"],
                                     "bytes_per_minute" => be_within(0.4 * (1 << 20)).of(1.05 * (1 << 20)))
          expect(finding["held_by"]).to include("KEPT")
        end
        expect(server.log.scan(/^memintro: String grows by ~.* a minute/).size).to eq(2)
      end
    end

    it "finds nothing in an hour of one that only churns" do
      PumaServer.run(rackup, env: { "HEALTHY" => "1" }, arguments: ["-t", "2:2"]) do |server|
        minutes = 0
        minutes = JSON.parse(server.get("/work").body).fetch("minutes") until minutes >= 60
        expect(JSON.parse(server.get("/").body)).to include("findings" => [], "errors" => 0, "tracking" => false)
      end
    end
  end
end
