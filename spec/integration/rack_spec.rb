# frozen_string_literal: true

require_relative "../spec_helper"

# A request's line while tracking is on has this thread's exact figures, or none.
RSpec.describe "Memintro::Middleware with tracking on" do
  before(:all) do
    found = run_ruby(code: "require 'rack/body_proxy'", requires: [])
    @reason = "no Rack here (Debian's ruby-rack)" unless found.success?
  end

  before { skip @reason if @reason }

  def lines(scenario, *more, **options) = run_ruby("rack_requests.rb", scenario, *more, **options).must_succeed.json

  thread_fields = %i[malloc_bytes malloc_calls freed_bytes]

  it "tells the thread's own traffic, without any of its own" do
    line, inner = lines("exact")
    _, bytes, calls, freed, = inner.fetch(:inner)
    expect(bytes).to be >= 200 * 1_000
    # The difference is only the memory of the two readings inside.
    expect(line[:malloc_bytes] - bytes).to be_between(0, 400)
    expect(line[:malloc_calls] - calls).to be_between(0, 8)
    expect(line[:freed_bytes] - freed).to be_between(0, 400)
  end

  it "tells the bytes in sampled mode too, where they are exact, and nothing else" do
    line, inner = lines("sampled")
    expect(inner[:inner]).to be >= 200 * 1_000
    expect(line[:malloc_bytes] - inner[:inner]).to be_between(0, 400)
    expect(line.keys & thread_fields).to eq([:malloc_bytes])
  end

  it "is right with sixteen threads at once, each streaming" do
    all = lines("sixteen threads")
    expect(all.size).to eq(160)
    all.each do |line|
      size = line[:path].delete("/").to_i
      expect(line[:malloc_bytes]).to be_between(100 * size, (100 * size) + 25_000), line.inspect
      expect(line[:malloc_calls]).to be_between(100, 400), line.inspect
    end
    expect(all.map { |line| line[:tid] }.uniq.size).to eq(16)
    expect(all.map { |line| line[:in_flight] }.max).to be_between(2, 16)
  end

  it "counts a streamed body until it is closed" do
    expect(lines("streaming").first[:malloc_bytes]).to be_between(7_301_000, 7_305_000)
  end

  it "counts what the thread gives back" do
    expect(lines("freed").first[:freed_bytes]).to be_between(5_000_000, 5_100_000)
  end

  it "judges by what the thread asked for which requests are over a bound" do
    all = lines("over")
    expect(all.map { |line| line[:path] }).to eq(%w[/1 /3])
    expect(all.map { |line| line[:malloc_bytes] }).to all(be_between(2_000_000, 2_200_000))
  end

  it "keeps the figures where growth alone is counted anew" do
    expect(lines("marked").first).to include(*thread_fields)
  end

  describe "where they are not known" do
    scenarios = ["off", "untracked", "hijacked", "async", "other thread", "live", "started", "stopped",
                 "stopped and started", "cleared", "reset", "out of budget", "fiber scheduler", "scheduler in between",
                 "sampled meanwhile"].freeze
    before(:context) { @all = Subprocess.run_ruby("rack_requests.rb", "each", *scenarios) unless @reason }

    scenarios.each do |scenario|
      it "has no figures of the thread: #{scenario}" do
        all = @all.must_succeed.json.fetch(scenario.to_sym)
        expect(all.size).to eq(1)
        expect(all.first).to include(:rss_bytes, :process_objects, :in_flight)
        expect(all.first.keys & thread_fields).to eq([])
      end
    end
  end

  it "has them where a controller is in play that is not live, and loads nothing to find out" do
    expect(lines("controller").first[:malloc_bytes]).to be_between(300_000, 350_000)
  end

  it "counts this thread alone where the application has another one work for it, as docs/memory_lines.md says" do
    # Ruby takes the other's stack here, up to a megabyte of it.
    expect(lines("thread of its own").first[:malloc_bytes]).to be_between(100, 5_000_000)
  end

  it "has no status where the application took the connection over" do
    expect(lines("hijacked").first).not_to include(:status)
  end

  it "has no figures of the thread where threads share native ones" do
    skip "this Ruby has no M:N threads" if RUBY_VERSION < "3.3"

    all = lines("exact", env: { "RUBY_MN_THREADS" => "1" })
    expect(all.first.keys & thread_fields).to eq([])
  end

  it "counts what is in flight anew in a forked child" do
    expect(lines("forked")).to contain_exactly({ event: "MEMORY", path: "/child", in_flight: 1 },
                                               { event: "MEMORY", path: "/parent", in_flight: 1 })
  end

  { "limit" => :rss, "growth" => :growth }.each do |scenario, limit|
    it "logs what grew, once, when a limit is crossed: #{limit}" do
      log = lines(scenario, :logfmt)
      told = log.scan(/^MEMORY limit=(\w+) value_bytes=(\d+) limit_bytes=(\d+) rss_bytes=\d+ pid=\d+$/)
      expect(told).to match([[limit.to_s, a_string_matching(/\A\d{8,}\z/), a_kind_of(String)]])
      expect(told[0][1].to_i).to be > told[0][2].to_i
      expect(log).to match(/^RSS grew by [\d.]+ MiB, from /)
      expect(log).to match(/^Objects \+[\d.]+ MiB .* of class String\b/)
      expect(log).to match(/^(?:at least| )*\+[\d.]+ MiB .*rack_requests\.rb:\d+$/)
    end

    it "logs the same as one object on one line, where the log is JSON: #{limit}" do
      written = lines(scenario, :json).lines
      expect(written).to all(end_with("}\n"))
      objects = written.map { |line| JSON.parse(line, symbolize_names: true) }
      expect(objects.map { |object| object[:event] }.uniq).to eq(["MEMORY"])
      told = objects.select { |object| object.key?(:limit) }
      expect(told).to match([include(limit: limit.to_s, pid: a_kind_of(Integer), rss_bytes: a_kind_of(Integer),
                                     time: a_string_matching(/\A\d{4}-\d\d-\d\dT.*Z\z/))])
      expect(told[0][:value_bytes]).to be > told[0][:limit_bytes]
      sections = told[0].dig(:diff, :sections)
      expect(sections[:classes][0]).to include(name: "String", growth: be > 5_000_000, count_growth: be > 99_000)
      expect(sections[:call_sites].map { |site| site[:name] }).to include(a_string_matching(/rack_requests\.rb:\d+\z/))
      expect(sections.values.map(&:size)).to all(be <= 10)
      expect(written.map(&:bytesize)).to all(be < 16_384)
    end
  end

  it "is put in place by what README.md shows, with the fields that it and docs/memory_lines.md show" do
    rackup = Documents.blocks("ruby config.ru").first.code
    printed = run_ruby(code: <<~RUBY, requires: ["memintro", "rack"]).must_succeed
      app = Rack::Builder.new { eval(#{rackup.dump}) }.to_app
      10.times { app.call({ "REQUEST_METHOD" => "GET", "SCRIPT_NAME" => "", "PATH_INFO" => "/posts" }) }
    RUBY
    expect(printed.stderr.lines).to match([/\AMEMORY method=GET path=\/posts status=200 .* malloc_bytes=\d+ /])
    fields = ->(line) { line.scan(/ (\w+)=/).flatten - %w[request_id time] }
    shown = Documents.blocks("").map(&:code).grep(/\AMEMORY method=/)
    given = fields[printed.stderr]
    expect(shown.map { |line| fields[line] }).to eq([given.first(9), given])
  end
end
