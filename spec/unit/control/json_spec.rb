# frozen_string_literal: true

require_relative "../../spec_helper"
require "json"
require "memintro"
require "memintro/control"

RSpec.describe Memintro::Control::Json do
  it "writes and reads what the json library writes and reads" do
    value = { "a" => [1, -2.5, 1e20, true, false, nil, [], {}], "text \"\\\n\u0001ü€😀/" => "b\tc",
              "deep" => { "x" => [[1]] } }
    expect(JSON.parse(described_class.generate(value))).to eq(value)
    expect(described_class.parse(JSON.generate(value))).to eq(value)
    expect(described_class.parse(JSON.generate(value, ascii_only: true))).to eq(value)
    expect(described_class.parse(JSON.pretty_generate(value))).to eq(value)
  end

  it "refuses what is not JSON, too deep, or not UTF-8" do
    ["", "{", "[1,]", "{\"a\" 1}", "{1:2}", "[1}", "nul", "1 2", "\"a", "\"\xFF\"", "[" * 20 + "]" * 20].each do |text|
      expect { described_class.parse(text) }.to raise_error(described_class::Invalid), text.inspect
    end
  end
end
