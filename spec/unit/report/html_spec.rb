# frozen_string_literal: true

require_relative "../../spec_helper"
require "digest"
require "json"
require "memintro"
require "memintro/malloc/call_sites"
require "memintro/report/report"
require "memintro/report/html"
require "stringio"

RSpec.describe Memintro::Report::Html do
  include_context "with a fake native"

  def page(**options) = StringIO.new.tap { |io| Memintro.report(io, format: :html, **options) }.string

  def data(...)
    JSON.parse(page(...)[%r{<script type="application/json" id="data">(.*?)</script>}m, 1])
  end

  it "names the hashes of its style and its script, so that nothing else runs" do
    { "style" => "style", "script" => "script" }.each do |kind, tag|
      content = page[%r{<#{tag}>(.*?)</#{tag}>}m, 1]
      expected = "sha256-#{[Digest::SHA256.digest(content)].pack('m0')}"
      expect(page).to include("#{kind}-src '#{expected}'"), "page.html must have #{kind}-src '#{expected}'"
    end
  end

  it "has the figures of all call sites, and adds up to them" do
    figures = data["figures"]
    expect(figures.first(3).map(&:sum)).to eq([51_204_000, 102_405_490, 49_999_500])
    expect(data["paths"].map(&:last).tally).to eq(3 => 2, 0 => 1, 2 => 1)
  end

  it "has one frame for what is beyond top" do
    found = data(top: 1)
    expect(found["paths"].map(&:first)).to eq(["/app/leak.rb", "(3 more call sites)"])
    expect(found["figures"][0]).to eq([51_200_000, 4_000])
  end

  it "is a prefix tree, parents first" do
    table = Struct.new(:frames, :rows).new([["/a.rb", 1, "a"], ["/b.rb", 2, nil]],
                                           [[[0, 1], 5, 5, 5, 0, 0, 0], [[0], 3, 3, 3, 0, 0, 0],
                                            [[1], 1, 2, -1, 0, 0, 0],
                                            [[0, 1], 7, 7, 7, 0, 0, 0, [1.0, 2.4, 3.0]]])
    found = JSON.parse(Memintro::Report::FlameData.new(table, { version: 1 }).json)
    expect(found.values_at("depth", "frame", "at")).to eq([[0, 1, 0], [0, 1, 1], [0, 1, 0, 1]])
    expect(found["figures"][0].sum).to eq(16)
    expect(found["variances"].map(&:sum)).to eq([1, 2, 3, 0, 0, 0])
    expect(found["frames"]).to eq([[0, 1, "a"], [1, 2, 0]])
  end

  it "has no name that would end the script" do
    native.rows = [[1, :ruby, "</script><!--<script>\u202E", 1, 1, 0, 9, 0, 0, 0, 0]]
    expect(page.scan(/<.?script/i).size).to eq(4)
    expect(data["paths"][0][0]).to eq("</script><!--<script>\\xE2\\x80\\xAE")
  end
end
