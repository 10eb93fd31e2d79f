# frozen_string_literal: true

require_relative "../spec_helper"
require "memintro/support/units"

RSpec.describe Memintro::Units do
  it "writes bytes in the largest unit that leaves at least one" do
    sizes = [0, 1, 1023, 1024, 1536, 51_200_000, 1_073_741_823, 5 * (1024**3), 1024**6]
    expect(sizes.map { |size| described_class.bytes(size) })
      .to eq(["0 B", "1 B", "1023 B", "1.0 KiB", "1.5 KiB", "48.8 MiB", "1.0 GiB", "5.0 GiB", "1024.0 PiB"])
  end

  it "keeps the sign of negative changes, and shows that of positive ones" do
    expect(described_class.bytes(-1536)).to eq("-1.5 KiB")
    expect([1536, 0, -2].map { |size| described_class.signed_bytes(size) }).to eq(["+1.5 KiB", "0 B", "-2 B"])
  end

  it "marks what is uncertain, with the error rounded up, and nothing else" do
    bytes = described_class.method(:bytes)
    expect(described_class.uncertain(2048, 100.2, &bytes)).to eq("~2.0 KiB ±101 B")
    expect(described_class.uncertain(2048, nil, &bytes)).to eq("2.0 KiB")
    expect(described_class.uncertain(9, Math.sqrt(3)**2, &:to_s)).to eq("~9 ±3")
    growths = [[1536, 8.0], [-1536, 8.0], [1536, nil]].map { |growth| described_class.uncertain_growth(*growth) }
    expect(growths).to eq(["~+1.5 KiB ±8 B", "~-1.5 KiB ±8 B", "+1.5 KiB"])
    expect(described_class.uncertain_growth(1_000, 2.5, :count)).to eq("~+1,000 ±3")
  end

  it "groups the digits of counts" do
    expect([0, 999, 1000, 1_234_567, -1_234_567].map { |number| described_class.count(number) })
      .to eq(["0", "999", "1,000", "1,234,567", "-1,234,567"])
  end

  it "has the noun go with its number" do
    expect([0, 1, -1, 2_000].map { |number| described_class.counted(number, "page") })
      .to eq(["0 pages", "1 page", "-1 pages", "2,000 pages"])
    expect([1, 2].map { |number| described_class.noun(number, "was", "were") }).to eq(%w[was were])
  end

  it "writes shares in per cent, and none of nothing" do
    expect([described_class.share(1, 3), described_class.share(2, 2), described_class.share(1, 0)])
      .to eq(["33.3%", "100.0%", "-"])
  end

  it "writes spans of time in what suits them" do
    expect([0.04, 119.9, 120, -150, 7200].map { |seconds| described_class.duration(seconds) })
      .to eq(["0.0 s", "119.9 s", "2.0 minutes", "-2.5 minutes", "2.0 hours"])
  end
end
