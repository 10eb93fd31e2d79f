# frozen_string_literal: true

require_relative "../../spec_helper"
require_relative "../../support/doubts"
require_relative "../../support/saved_report"

RSpec.describe "The sum of reports" do
  # Allocations, frees, total and freed bytes, age total, greatest lifespan, live bytes at the mark.
  def row(figures, variances = nil, name: "/app/a.rb", **doubts)
    [0, :ruby, name, 7, *figures, variances && Doubts.of_row(variances, **doubts)]
  end

  # As a process writes it, and the command reads it.
  def report(rows, totals, process = {}, variances: nil)
    facts = { pid: 1, program: "app", ruby: "3.1.2", memintro: "0.1.0", mode: :full, tracking: true, preloaded: true }
    doubts = variances && Doubts.of_totals(variances)
    SavedReport.read(rows: rows, totals: [*totals, doubts], process: facts.merge(process))
  end

  def summed(*reports) = Memintro::Native::Report.sum(reports)
  def sum(*reports) = Memintro::CallSites.from_report(summed(*reports))
  def written(report) = SavedReport.json(report)

  let(:sampled) { { mode: :sampled, sample_bytes: 1_000 } }
  let(:off) { report([], [0] * 7, { pid: 9, mode: :off, tracking: false }) }
  let(:first) do
    report([row([100, 40, 5_000, 2_000, 80, 3, 500], [16.0, 9.0, 400.0, 300.0],
                growth: 64.0, ages: 36.0, covariance: 18.0)],
           [5_000, 2_000, 100, 40, 1, 64, 2], sampled, variances: [900.0, 500.0, 25.0, 9.0])
  end
  let(:second) do
    report([row([20, 10, 900, 300, 60, 9, -100], [9.0, 4.0, 225.0, 125.0],
                growth: 36.0, ages: 64.0, covariance: 12.0)],
           [900, 300, 20, 10, 2, 36, 3], sampled, variances: [700.0, 300.0, 11.0, 7.0])
  end

  it "adds up what can be added, takes the greatest lifespan, and weighs the mean by the frees" do
    one = row([10, 4, 1_000, 400, 8, 2, 100])
    other = row([30, 16, 3_000, 1_600, 96, 9, -50])
    all = sum(report([one], [1_000, 400, 10, 4, 1, 64, 2]),
              report([other, row([1, 0, 5, 0, 0, 0, 0], name: "/app/b.rb")], [3_005, 1_600, 31, 16, 2, 36, 3]))
    expect(all.top(nil).map(&:to_h)).to match(
      [include(name: "/app/a.rb:7", allocations: 40, frees: 20, total_bytes: 4_000, freed_bytes: 2_000,
               live_bytes: 2_000, live_blocks: 20, mean_lifespan: 5.2, max_lifespan: 9, age_total: 104, growth: 1_950),
       include(name: "/app/b.rb:7", live_bytes: 5)]
    )
    expect(all.totals.to_h).to eq(allocated_bytes: 4_005, freed_bytes: 2_000, live_bytes: 2_005, allocations: 41,
                                  frees: 20, live_blocks: 21, missed_frees: 3, tracker_bytes: 100, dropped: 5)
  end

  it "has the root of the sum of squares for a standard error" do
    all = sum(first, second)
    site = all.top(1).first
    errors = site.standard_errors.transform_values { |error| (error**2).round(6) }
    expect(errors).to include(allocations_standard_error: 25.0, frees_standard_error: 13.0,
                              total_bytes_standard_error: 625.0, freed_bytes_standard_error: 425.0,
                              live_bytes_standard_error: 200.0, live_blocks_standard_error: 12.0,
                              growth_standard_error: 100.0, age_total_standard_error: 100.0)
    # (100 - 2 * 2.8 * 30 + 2.8² * 13) / 50²: of a quotient of two sums.
    expect(site.mean_lifespan).to eq(2.8)
    expect(site.mean_lifespan_standard_error).to be_within(1e-9).of(Math.sqrt((100 - 168 + 101.92) / 2_500))
    totals = all.totals
    expect([totals.allocated_bytes_standard_error, totals.live_bytes_standard_error, totals.live_blocks_standard_error])
      .to match([be_within(1e-9).of(40), be_within(1e-9).of(Math.sqrt(800)), be_within(1e-9).of(Math.sqrt(20))])
  end

  it "lets what is exact add nothing to the standard error, wherever it stands" do
    exact = report([row([1, 0, 100, 0, 0, 0, 0])], [100, 0, 1, 0, 0, 0, 0])
    [[exact, first], [first, exact]].each do |reports|
      all = sum(*reports)
      expect(all.top(1).first.shown(:live_bytes, &:to_s)).to eq("~3100 ±10")
      expect(all.totals.shown(:live_bytes, &:to_s)).to eq("~3100 ±20")
    end
    expect(sum(exact, exact).totals).not_to be_estimated
  end

  it "marks the estimates of workers whose master does not track, and does not say that none does" do
    all = summed(off, first, second)
    expect(all.process).to include(pid: 9, processes: 3, tracking: true, mode: "sampled", sample_bytes: 1_000)
    expect(written(all)["totals"]).to include("estimated" => true, "live_bytes" => 3_600)
    text = SavedReport.written(all, top: 3)
    expect(text).to include("sampled mode (1000 B), preloaded", "live ~3.5 KiB ±29 B in ~70 ±5 blocks",
                            "Figures with ~ are estimated from a sample, one byte in 1,000.")
    expect(text).not_to include("not tracking", "Tracking is off")
  end

  it "calls two modes mixed, and names no distance where there are two" do
    full = report([], [0] * 7)
    expect(sum(full, first).process).to include(mode: "mixed", tracking: true, sample_bytes: 1_000)
    other = report([], [0] * 7, { mode: :sampled, sample_bytes: 2_000 }, variances: [0.0] * 4)
    expect(sum(first, other).process).not_to include(:sample_bytes)
    expect(sum(off, off).process).to include(mode: "off", tracking: false, processes: 2)
  end
end
