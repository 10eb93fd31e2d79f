# frozen_string_literal: true

require_relative "../../spec_helper"
require "digest"
require_relative "../../support/saved_report"

RSpec.describe "A report as a page with a flame graph" do
  def page(report = SavedReport.read, **options) = SavedReport.written(report, format: :html, **options)

  def data(...)
    JSON.parse(page(...)[%r{<script type="application/json" id="data">(.*?)</script>}m, 1])
  end

  # allocations, frees, total and freed bytes, age total, greatest lifespan, live bytes at the mark.
  # figures: or lists of value, variance and skew. covariance: of ages with frees, of estimates.
  def stack(frames, figures, covariance: nil, objects: nil)
    ["ruby", "/a.rb", 1, *figures, covariance, nil, objects, frames]
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

  it "is a prefix tree of whole stacks, parents first, each frame once" do
    stacks = [stack([1, 0], [1, 0, 5, 0, 0, 0, 0]), stack([0], [1, 0, 3, 0, 0, 0, 0]),
              stack([1], [1, 0, 2, 1, 0, 0, 2]),
              stack([1, 0], [1, 0, [7, 2.4, 0.0], [0, 1.4, 0.0], 0, 0, [0, 3.0, 0.0]], covariance: 0.0)]
    report = Memintro::Native::Report.read(SavedReport.text(frames: [["/a.rb", 1, "a"], ["/b.rb", 2, nil]],
                                                            stacks: stacks))
    found = data(report, by: :total_bytes)
    expect(found.values_at("depth", "frame", "at")).to eq([[0, 1, 0], [0, 1, 1], [0, 1, 0, 1]])
    expect(found["figures"].first(3)).to eq([[3, 7, 5, 1], [3, 7, 5, 2], [3, 7, 5, -1]])
    expect(found["variances"].map(&:sum)).to eq([1, 2, 3, 0, 0, 0])
    expect(found["frames"]).to eq([[0, 1, "a"], [1, 2, 0]])
  end

  it "has the slots of objects, and what of them is new since the mark" do
    rows = [[0, :ruby, "/app/a.rb", 3, 0, 0, 0, 0, 0, 0, 0, nil, nil, [10, 4, 400, 160, 80, 0, 0]]]
    expect(data(SavedReport.read(rows: rows))["figures"].flatten).to eq([0, 0, 0, 240, 400, 160])
  end

  it "has no name that would end the script" do
    rows = [[1, :ruby, "</script><!--<script>\u202E", 1, 1, 0, 9, 0, 0, 0, 0]]
    expect(page(SavedReport.read(rows: rows)).scan(/<.?script/i).size).to eq(4)
    expect(data(SavedReport.read(rows: rows))["paths"][0][0]).to eq("</script><!--<script>\\xE2\\x80\\xAE")
  end
end
