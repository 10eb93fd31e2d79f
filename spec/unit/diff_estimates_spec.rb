# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/doubts"
require_relative "../../lib/memintro"
require_relative "../../lib/memintro/malloc/call_sites"
require "stringio"

# Diffs of snapshots whose malloc figures are estimates.
RSpec.describe Memintro::Diff do
  # sites: { name => [[allocations, frees, total and freed bytes], their variances] }
  def sampled(seconds, sites, totals:, variances:, left_out: 0, process: {})
    rows = sites.each_with_index.map do |(name, (figures, own)), id|
      path, _, line = name.rpartition(":")
      [id, :ruby, path, line.to_i, *figures, 0, 0, 0, own && Doubts.of_row(own)]
    end
    facts = Snapshots::PROCESS.merge(mode: :sampled, **process)
    doubts = variances && Doubts.of_totals(variances)
    made = Memintro::CallSites.new(Memintro::Totals.new(*totals, 0, 64, 0, doubts), rows, facts)
    made.leave_out(left_out)
    Memintro::Snapshot.new(
      time: Time.utc(2026, 11, 22, 12).to_f + seconds, monotonic_s: 1000.0 + seconds, memory: { rss_bytes: 50 << 20 },
      cgroup: nil, gc: Snapshots::GC_STAT, gc_heaps: nil, sites: made, parts: [], missing: {}
    )
  end

  # A site that kept all and got more, and one that turned over.
  let(:earlier) do
    sampled(0, { "/a.rb:1" => [[100, 0, 1_000_000, 0], [100.0, 0.0, 1e10, 0.0]],
                 "/b.rb:2" => [[100, 90, 100_000, 90_000], [400.0, 300.0, 4e8, 3e8]] },
            totals: [1_100_000, 90_000, 200, 90], variances: [1.04e10, 3e8, 500.0, 300.0])
  end
  let(:later) do
    sampled(10, { "/a.rb:1" => [[109, 0, 1_090_000, 0], [109.0, 0.0, 1.09e10, 0.0]],
                  "/b.rb:2" => [[900, 870, 900_000, 870_000], [4_000.0, 3_700.0, 4e9, 3.7e9]],
                  "/c.rb:3" => [[10, 0, 80_000, 0], [25.0, 0.0, 1.6e9, 0.0]] },
            totals: [2_070_000, 870_000, 1_019, 870], variances: [1.65e10, 3.7e9, 4_134.0, 3_700.0])
  end
  let(:diff) { later - earlier }

  def errors(change) = change.standard_errors.transform_values(&:round)

  it "gives each figure of a call site its standard error: of a growth the lesser of two bounds" do
    kept, other, turned = diff.call_sites.sort_by(&:name).values_at(0, 2, 1)
    # Blocks that stayed cancel out: 1.09e10 - 1e10, not 1.09e10 + 1e10.
    expect([kept.growth, errors(kept)]).to eq([90_000, { before_standard_error: 100_000, after_standard_error: 104_403,
                                                         growth_standard_error: 30_000, count_before_standard_error: 10,
                                                         count_after_standard_error: 10,
                                                         count_growth_standard_error: 3 }])
    # Blocks that came and went in between add nothing: 1e8 + 3e8, not (4e9 - 4e8) + (3.7e9 - 3e8).
    expect([turned.growth, errors(turned)[:growth_standard_error]]).to eq([20_000, 20_000])
    expect(errors(other)).to include(before_standard_error: 0, after_standard_error: 40_000,
                                     growth_standard_error: 40_000, count_growth_standard_error: 5)
    expect(diff.call_sites).to all(be_estimated)
  end

  it "gives the totals theirs: what came in between is exactly as unsure as its own sample" do
    rows = diff.malloc.to_h { |change| [change.name, change] }
    expect(rows.keys).to all(satisfy { |name| !name.include?("error") })
    expect((rows["allocated_bytes"].growth_standard_error**2).round).to eq(6_100_000_000)
    # Bounds: 1.01e10 + 1.28e10 and 6.1e9 + 3.4e9.
    expect((rows["live_bytes"].growth_standard_error**2).round).to eq(9_500_000_000)
  end

  it "adds the squares where the samples are not one" do
    other = sampled(10, { "/a.rb:1" => [[109, 0, 1_090_000, 0], [109.0, 0.0, 1.09e10, 0.0]] },
                    totals: [1_090_000, 0, 109, 0], variances: [1.09e10, 0.0, 109.0, 0.0], process: { epoch: 2 })
    site = (other - earlier).call_sites.find { |change| change.name == "/a.rb:1" }
    expect((site.growth_standard_error**2).round).to eq(20_900_000_000)
    exact = sampled(10, { "/a.rb:1" => [[109, 0, 1_090_000, 0], nil] }, totals: [1_090_000, 0, 109, 0], variances: nil,
                                                                        process: { epoch: 2, mode: :full })
    site = (exact - earlier).call_sites.find { |change| change.name == "/a.rb:1" }
    expect([site.growth_standard_error.round, site.after_standard_error, site.estimated?]).to eq([100_000, 0.0, true])
  end

  it "is as sure backwards" do
    back = (earlier - later).call_sites.to_h { |change| [change.name, change.growth_standard_error.round] }
    expect(back).to eq("/a.rb:1" => 30_000, "/b.rb:2" => 20_000, "/c.rb:3" => 40_000)
  end

  it "marks every figure of malloc in the text, the verdict and the inspect included" do
    text = diff.to_s
    expect(text).to include("\nMalloc ~+185.5 KiB ±95.2 KiB in ~39 ±26, above all at /a.rb:1 (~+87.9 KiB ±29.3 KiB), ",
                            "note: Malloc was sampled: ")
    expect(text).to match(%r{^~\+87\.9 KiB ±29\.3 KiB +~\+9 ±3 +~1\.0 MiB ±102\.0 KiB +~109 ±11 +/a\.rb:1$})
    expect(text).to match(/^ *~\+185\.5 KiB ±95\.2 KiB +~1\.1 MiB ±110\.5 KiB +live_bytes$/)
    expect(text).to match(/^ *~\+39 ±26 +~149 ±21 +live_blocks$/)
    expect(diff.call_sites.first.inspect)
      .to eq("#<Memintro::Diff::Change /a.rb:1 ~+87.9 KiB ±29.3 KiB, ~+9 ±3 of them>")
    cut = StringIO.new.tap { |io| diff.write(io, top: 1) }.string
    expect(cut).to include("2 more changed, by ~+97.7 KiB ±43.7 KiB together")
  end

  it "marks them in the page and in JSON" do
    page = diff.to_html
    expect(page).to include("~+87.9 KiB ±29.3 KiB</td>", "<td>~976.6 KiB ±97.7 KiB</td>",
                            "<td>~1.0 MiB ±102.0 KiB</td>", "<td>~109 ±11</td>")
    site = JSON.parse(diff.to_json).dig("sections", "call_sites", 0)
    expect(site).to include("name" => "/a.rb:1", "estimated" => true, "growth" => 90_000)
    expect(site["growth_standard_error"]).to be_within(0.01).of(30_000)
    expect(JSON.parse(diff.to_json).dig("sections", "memory").to_s).not_to include("estimated")
  end

  it "gives a lower bound with the error of the known side" do
    few = { left_out: 3, totals: [2_300, 0, 3, 0], variances: [2_410.0, 0.0, 3.0, 0.0] }
    first = sampled(0, { "/a.rb:1" => [[1, 0, 900, 0], [1.0, 0.0, 810.0, 0.0]] }, **few)
    second = sampled(1, { "/new.rb:3" => [[2, 0, 1_400, 0], [2.0, 0.0, 1_600.0, 0.0]] }, **few)
    change = (second - first).call_sites.find { |one| one.name == "/new.rb:3" }
    expect(change.growth_text).to eq("at least ~+500 B ±40 B")
    expect(change.to_h.keys.grep(/count_\w+_standard_error/)).to eq([])
  end

  it "marks nothing where all is exact" do
    exact = snapshot(1, sites: { "/a.rb:1" => [9_000_000, 90] }) - snapshot(sites: { "/a.rb:1" => [1_000, 10] })
    expect([exact.to_s, exact.to_html, exact.to_json].join).not_to match(/[±~]|estimated|standard_error/)
  end
end
