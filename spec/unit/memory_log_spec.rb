# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/doubts"
require "memintro"
require "memintro/logging/memory_log"

# The units of the line. spec/integration/memory_log_spec.rb has what it says, where and when.
RSpec.describe "Memintro::MemoryReading" do
  # A process of this size, with so many live objects, and of the collector what a line with details is told.
  def line(rss_bytes, objects, collector = nil)
    allow(Memintro).to receive(:rss).and_return(rss_bytes)
    allow(GC).to receive(:stat).with(:heap_live_slots).and_return(objects)
    reading = Memintro::MemoryReading.new(!collector.nil?, collector&.passed_ms)
    reading.article.sub(/\AMEMORY\[#{Process.pid}\]: time: \S+ \S+ [+-]\d{4} /, "")
  end

  it "is in megabytes and millions at any size, so that a plot takes the numbers alone" do
    expect(line(1_177_970_278, 1_200_000)).to eq("rss: 1123.4 MB, live_objects: 1.2 Million")
    expect(line(90 << 30, 123_456_789)).to eq("rss: 92160.0 MB, live_objects: 123.457 Million")
    expect(line(600 << 10, 9_400)).to eq("rss: 0.6 MB, live_objects: 0.009 Million")
    expect(line(5 << 20, 20_000)).to eq("rss: 5.0 MB, live_objects: 0.02 Million")
  end

  it "is also right in its details" do
    totals = Memintro::Totals.new(90 << 30, 10 << 30, 10, 4, 0, 64, 0)
    allow(Memintro).to receive_messages(tracking?: true, totals: totals)
    expect(line(90 << 30, 0, Struct.new(:passed_ms).new(75_432.16)))
      .to match(/ 0\.0 Million, malloc_live: 81920\.0 MB, gc_count: \d+, gc_time: 75432\.2 ms\z/)
    rough = Memintro::Totals.new(90 << 30, 10 << 30, 10, 4, 0, 64, 0,
                                 Doubts.of_totals([1.0 * (1 << 62), 0.0, 1.0, 0.0]))
    allow(Memintro).to receive(:totals).and_return(rough)
    expect(line(90 << 30, 0, Struct.new(:passed_ms).new(nil)))
      .to match(/malloc_live: 81920\.0 MB \(estimate ±2048\.0 MB\), gc_count: \d+\z/)
  end

  it "has the same figures in logfmt and JSON, by the names of requests' lines" do
    totals = Memintro::Totals.new(9_000, 1_000, 10, 4, 0, 64, 0, Doubts.of_totals([250_000.0, 0.0, 1.0, 0.0]))
    allow(Memintro).to receive_messages(tracking?: true, totals: totals, rss: 1_000_000)
    allow(GC).to receive_messages(stat: 20_000, count: 12)
    reading = Memintro::MemoryReading.new(true, 3.25)
    fields = Memintro::MemoryReading::FIELDS.keys
    expect(Memintro::MemoryLine.new(fields, :logfmt).render(reading))
      .to eq("MEMORY rss_bytes=1000000 live_objects=20000 malloc_live_bytes=8000 " \
             "malloc_live_bytes_standard_error=500.0 gc_count=12 gc_ms=3.3")
    expect(JSON.parse(Memintro::MemoryLine.new([*fields, :pid], :json).render(reading)))
      .to include("event" => "MEMORY", "rss_bytes" => 1_000_000, "gc_ms" => 3.3, "pid" => Process.pid)
  end
end
