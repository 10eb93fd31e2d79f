# frozen_string_literal: true

require_relative "../spec_helper"

# What a request's line says while tracking is on: this thread's figures, exactly, or none.
RSpec.describe "Memintro::Middleware with tracking on" do
  before(:all) do
    found = run_ruby(code: "require 'rack/body_proxy'", requires: [])
    @reason = "no Rack here (Debian's ruby-rack)" unless found.success?
  end

  before { skip @reason if @reason }

  def lines(scenario, **options) = run_ruby("rack_requests.rb", scenario, **options).must_succeed.json

  thread_fields = %i[malloc_bytes malloc_calls freed_bytes]

  it "tells the thread's own traffic, without any of its own" do
    line, inner = lines("exact")
    _, bytes, calls, freed, = inner.fetch(:inner)
    expect(bytes).to be >= 200 * 1_000
    # What the two readings inside took themselves is all that comes on top.
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

  it "keeps the figures where growth alone is counted anew" do
    expect(lines("marked").first).to include(*thread_fields)
  end

  ["off", "untracked", "hijacked", "async", "other thread", "started", "stopped", "stopped and started", "cleared",
   "reset", "out of budget", "fiber scheduler", "scheduler in between",
   "sampled meanwhile"].each do |scenario|
    it "has no figures of the thread where they are not known: #{scenario}" do
      all = lines(scenario)
      expect(all.size).to eq(1)
      expect(all.first).to include(:rss_bytes, :process_objects, :in_flight)
      expect(all.first.keys & thread_fields).to eq([])
    end
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

  it "logs what grew, once, when RSS crosses a limit" do
    log = lines("limit")
    expect(log.scan(/^MEMORY limit=rss value_bytes=\d+ limit_bytes=\d+ rss_bytes=\d+ pid=\d+$/).size).to eq(1)
    expect(log).to match(/^RSS grew by [\d.]+ MiB, from /)
    expect(log).to match(/: objects of class String\.$/)
    expect(log).to match(/^ *\+[\d.]+ MiB .*rack_requests\.rb:\d+$/)
  end

  it "is put in place by what README.md shows" do
    readme = File.read(File.join(Subprocess::ROOT, "README.md"), encoding: "UTF-8")
    rackup = readme[/^```ruby config\.ru\n(.*?)^```$/m, 1]
    printed = run_ruby(code: <<~RUBY, requires: ["memintro", "rack"]).must_succeed
      app = Rack::Builder.new { eval(#{rackup.dump}) }.to_app
      10.times { app.call({ "REQUEST_METHOD" => "GET", "SCRIPT_NAME" => "", "PATH_INFO" => "/posts" }) }
    RUBY
    expect(printed.stderr.lines).to match([/\AMEMORY method=GET path=\/posts status=200 .* malloc_bytes=\d+ /])
  end
end
