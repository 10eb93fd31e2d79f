# frozen_string_literal: true

require_relative "../spec_helper"
require "json"
require "memintro"
require "memintro/support/json_text"

RSpec.describe Memintro::JsonText do
  it "writes and reads what the json library writes and reads" do
    value = { "a" => [1, -2.5, 1e20, true, false, nil, [], {}], "text \"\\\n\u0001ü€😀/" => "b\tc",
              "deep" => { "x" => [[1]] } }
    expect(JSON.parse(described_class.line(value))).to eq(value)
    expect(described_class.parse(JSON.generate(value))).to eq(value)
    expect(described_class.parse(JSON.generate(value, ascii_only: true))).to eq(value)
    expect(described_class.parse(JSON.pretty_generate(value))).to eq(value)
  end

  it "refuses text that is not JSON, too deep, or not UTF-8" do
    ["", "{", "[1,]", "{\"a\" 1}", "{1:2}", "[1}", "nul", "1 2", "\"a", "\"\xFF\"", "[" * 70 + "]" * 70].each do |text|
      expect { described_class.parse(text) }.to raise_error(described_class::Invalid), text.inspect
    end
  end

  it "keeps texts as they are, wherever characters of several bytes stand" do
    value = { "é" => ["ü", "€\"é", { "😀" => "\\é" }, "日本"] }
    parsed = described_class.parse(JSON.generate(value))
    expect(parsed).to eq(value)
    expect([*parsed.keys, *parsed["é"].grep(String)].map(&:encoding).uniq).to eq([Encoding::UTF_8])
    expect { described_class.parse('"\\é"') }.to raise_error(described_class::Invalid, /escape at line 1 column 3/)
    expect { described_class.parse("[\"é\" 1]") }.to raise_error(described_class::Invalid, /at line 1 column 7/)
  end

  it "reads numbers of any size, the greatest ones rounded" do
    expect(described_class.parse("[18446744073709551615, 10000000000000000000000, 1e3, -0.5]"))
      .to eq([(2**64) - 1, 10**22, 1000.0, -0.5])
    expect {
      described_class.parse("1#{'0' * 400}")
    }.to raise_error(described_class::Invalid, /a number is too great at line 1/)
  end

  # What this process computes: how long it waits for a processor does not count. Eight times as much text may take
  # a multiple of eight, for caches; where each position is counted from the beginning it takes 50 times as long.
  it "reads long texts that are not ASCII in time that grows as they do", alone: true do
    text = lambda do |size|
      JSON.generate("a" => "é" * size, "b" => [1] * (2 * size), "é" => (0..size).to_h { |i| ["ü#{i}", "€"] })
    end
    seconds = lambda do |line|
      GC.start
      begun = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
      described_class.parse(line)
      Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) - begun
    end
    lines = [6_400, 800].map(&text)
    long, short = Array.new(11) { lines.map(&seconds) }.transpose.map(&:min)
    expect(long / short).to be < 24
  end
end
