# frozen_string_literal: true

require_relative "../spec_helper"
require "memintro"

RSpec.describe "a list of rows" do
  let(:long) { Memintro::List.new((1..10_000).to_a) }

  it "is an Array with its rows, and frozen" do
    expect(long).to eq((1..10_000).to_a)
    expect(long).to be_a(Array).and be_frozen
    expect(long.first(2)).to eq([1, 2])
    expect(long.to_a).to be_instance_of(Array)
    expect { long << 1 }.to raise_error(FrozenError)
  end

  it "shows the first rows, one a line, and how many more there are" do
    lines = long.inspect.lines
    expect(lines.first).to eq("#<Memintro::List 10,000 rows:\n")
    expect(lines[1..2]).to eq(%W[\s\s1\n \s\s2\n])
    expect(lines.last).to eq("  and 9,950 more>")
    expect(lines.size).to eq(52)
    expect(long.to_s).to eq(long.inspect)
  end

  it "shows a short list whole, and says that one is empty" do
    expect(Memintro::List.new([1]).inspect).to eq("#<Memintro::List 1 row:\n  1>")
    expect(Memintro::List.new.inspect).to eq("#<Memintro::List empty>")
  end

  it "keeps to about 8 kB with rows of any width, one huge row too" do
    wide = Memintro::List.new(["é" * 5000] * 1000)
    expect(wide.inspect.bytesize).to be_between(6_000, 8_200)
    expect(wide.inspect.lines[1].chomp.size).to eq(402)
  end

  it "shows the same to pp, as irb does" do
    expect { pp long }.to output("#{long.inspect}\n").to_stdout
  end
end
