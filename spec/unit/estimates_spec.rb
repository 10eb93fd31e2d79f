# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/doubts"
require "memintro"

RSpec.describe Memintro::Estimates do
  include_context "with a fake native"

  let(:totals) { Memintro::Totals.new(1000, 400, 10, 4, 1, 64, 2, Doubts.of_totals([900.0, 500.0, 25.0, 9.0])) }
  let(:doubts) { { growth: 64.0, ages: 36.0, covariance: 18.0 } }
  let(:variances) { [16.0, 9.0, 400.0, 300.0] }
  let(:row) { [3, :ruby, "/app/a.rb", 7, 100, 40, 5000, 2000, 80, 3, 500, Doubts.of_row(variances, **doubts)] }
  let(:site) { Memintro::CallSite.new(row) }

  # A sample of allocations stands for 8 blocks, and one of their bytes for 50.
  let(:sampled) { row[0...-1] << Doubts.of_row(variances, [128.0, 0.0, 20_000.0, 3_000.0], **doubts) }

  it "gives totals their standard errors; a block that is gone makes what is live no less sure" do
    expect(totals).to be_estimated.and be_frozen
    expect([totals.allocated_bytes_standard_error, totals.live_bytes_standard_error, totals.live_blocks_standard_error])
      .to eq([30.0, 20.0, 4.0])
    expect(totals.to_h).to include(estimated: true, frees_standard_error: 3.0, live_bytes: 600,
                                   live_bytes_interval: [560, 640])
    expect([totals[:live_bytes_standard_error], totals["estimated"], totals[:frees]]).to eq([20.0, true, 4])
    expect(totals[:live_bytes_interval]).to eq([560, 640])
    expect(totals.inspect).to eq("#<Memintro::Totals live ~600 B ±20 B in ~6 ±4 blocks, allocated ~1000 B ±30 B in " \
                                 "~10 ±5, freed ~400 B ±23 B in ~4 ±3>")
  end

  it "widens a standard error by what one sample stands for, others' where none was drawn" do
    site = Memintro::CallSite.new(sampled)
    expect([site.allocations_standard_error, site.total_bytes_standard_error].map { |error| error**2 })
      .to match([be_within(1e-6).of(16 + (8**2)), be_within(1e-6).of(400 + (50**2))])
    expect(site.frees_standard_error**2).to be_within(1e-6).of(9 + (8**2))
    none = row[0...-1] << Doubts.of_row([16.0, 0.0, 400.0, 0.0], [128.0, 0.0, 20_000.0, 0.0], growth: 64.0)
    none[5] = none[7] = 0
    site = Memintro::CallSite.new(none)
    expect(site.to_h).to include(frees: 0, frees_standard_error: 8.0, frees_interval: [0, 39], freed_bytes: 0,
                                 freed_bytes_standard_error: 50.0, freed_bytes_interval: [0, 240])
  end

  it "has intervals that reach further up than down where few were sampled, and evenly where many were" do
    # As in crates/tracker/tests/intervals.rs.
    [[[0, 0.0, 0.0], [0, 48]], [[10, 100.0, 1_000.0], [1, 66]], [[100, 1_000.0, 10_000.0], [53, 192]],
     [[10_000, 1e5, 1e6], [9_387, 10_657]]].each do |(value, variance, skew), interval|
      figures = Memintro::Totals.new(0, 0, 10_000, value, 0, 0, 0,
                                     Doubts.of_totals([0.0, 0.0, 1e5, variance], [0.0, 0.0, 1e6, skew]))
      expect(figures.interval(:frees)).to eq(interval)
    end
    expect(Memintro::Totals.new(1000, 400, 10, 4, 1, 64, 2).interval(:frees)).to eq([4, 4])
    expect { totals.interval(:dropped) }.to raise_error(ArgumentError, /no standard error of :dropped/)
  end

  it "says what is lopsided as a range, and what is not with its error" do
    few = Memintro::Totals.new(10_240, 0, 10, 0, 0, 0, 0,
                               Doubts.of_totals([1.04e8, 0.0, 100.0, 0.0], [1.06e12, 0.0, 1_000.0, 0.0]))
    expect(few.shown(:allocations, &:to_s)).to eq("~10 (1 to 66)")
    expect(few.shown(:frees, &:to_s)).to eq("~0 (0 to 48)")
    expect(few.shown(:allocated_bytes, &Memintro::Units.method(:bytes))).to match(/\A~10\.0 KiB \(1\.\d KiB to /)
    expect(totals.shown(:allocations, &:to_s)).to eq("~10 ±5")
  end

  it "has a bound, and no site, for what was never sampled" do
    native.figures = [0, 0, 0, 0, 0, 0, 0, 0, 0, [0.0] * 8, [1_600.0, 100.0]]
    nothing = Memintro.totals
    expect([nothing.allocated_bytes, nothing.interval(:live_bytes), nothing.interval(:allocations)])
      .to eq([0, [0, 7_680], [0, 480]])
  end

  # The twin of crates/tracker/tests/intervals.rs, with the figures that Ruby makes of a row: so many samples of blocks
  # that stand for 64 each, or for 16 to 256.
  { "equal" => ->(_) { 64.0 }, "mixed" => ->(random) { 4096.0 / (16 + random.rand(241)) } }.each do |sizes, weight_of|
    it "holds the truth in 93 to 97 of 100 cases, bytes and counts, at 1, 3, 10, 100 samples of #{sizes} sizes" do
      random = Random.new(5)
      # Size-biased: so many blocks of each weight are there for each that is sampled.
      average = sizes == "equal" ? 64.0 : 4096.0 / 136
      shares = [[1, 8_000], [3, 4_000], [10, 2_500], [100, 1_000]].flat_map do |expected, trials|
        held = [0, 0]
        trials.times do
          rate = expected * (2**((2 * random.rand) - 1))
          sums = [0.0] * 6
          poisson(rate, random).times do
            # Among blocks of 16 to 256 bytes, larger ones are drawn more often.
            weight = weight_of.call(random)
            weight = weight_of.call(random) until sizes == "equal" || random.rand < 16 / weight
            size = 4096.0 / weight
            [weight, weight * size].zip([1, size]).each_with_index do |(amount, of), at|
              sums[at * 3] += amount
              sums[(at * 3) + 1] += weight * (weight - 1) * (of**2)
              sums[(at * 3) + 2] += weight * ((weight - 1)**2) * (of**3)
            end
          end
          count, cv, cs, bytes, bv, bs = sums
          site = Memintro::CallSite.new([3, :ruby, "/a.rb", 7, 9_999, count.round, 99_999, bytes.round, 0, 0, 0,
                                         Doubts.of_row([1e5, cv, 4e8, bv], [1e5 * average, cs, 4e8 * 4096, bs])])
          [[:frees, rate * average], [:freed_bytes, rate * 4096]].each_with_index do |(name, truth), at|
            low, high = site.interval(name)
            held[at] += 1 if truth.between?(low, high)
          end
        end
        held.map { |count| count.fdiv(trials) }
      end
      expect(shares).to all(be_between(0.93, 0.975)), shares.inspect
    end
  end

  def poisson(rate, random)
    count = 0
    product = random.rand
    while product > Math.exp(-rate)
      count += 1
      product *= random.rand
    end
    count
  end

  it "says of exact figures that they are" do
    exact = Memintro::Totals.new(1000, 400, 10, 4, 1, 64, 2)
    expect([exact.estimated?, exact.live_bytes_standard_error, exact[:estimated]]).to eq([false, 0.0, false])
    expect(exact.to_h.keys).to eq(Memintro::Totals::ATTRIBUTES)
    expect(exact).not_to eq(totals)
  end

  it "has no standard error for exact figures" do
    expect { totals.standard_error(:dropped) }.to raise_error(ArgumentError, /no standard error of :dropped; there is/)
    expect { totals[:dropped_standard_error] }.to raise_error(ArgumentError, /has no :dropped_standard_error/)
  end

  it "is an upper bound of the events between two moments" do
    flow = totals - Memintro::Totals.new(100, 0, 1, 0, 0, 64, 0, Doubts.of_totals([100.0, 0.0, 4.0, 0.0]))
    expect([flow.allocated_bytes_standard_error,
            flow.live_bytes_standard_error]).to eq([Math.sqrt(800), Math.sqrt(1300)])
    expect((totals - Memintro::Totals.new(0, 0, 0, 0, 0, 0, 0)).allocated_bytes_standard_error).to eq(30.0)
  end

  it "gives call sites theirs, the old blocks' too" do
    expect(site.standard_errors).to eq(
      allocations_standard_error: 4.0, frees_standard_error: 3.0, total_bytes_standard_error: 20.0,
      freed_bytes_standard_error: Math.sqrt(300), live_bytes_standard_error: 10.0,
      live_blocks_standard_error: Math.sqrt(7), mean_lifespan_standard_error: 0.0,
      age_total_standard_error: 6.0, growth_standard_error: 8.0
    )
    old = Memintro::CallSite.new(row, [700, 5, 49.0, 0.0, 4.0, 0.0])
    expect([old.live_bytes_standard_error, old.live_blocks_standard_error]).to eq([7.0, 2.0])
    expect(site.inspect).to eq("#<Memintro::CallSite /app/a.rb:7 live ~2.9 KiB ±10 B in ~60 ±3 blocks, ~100 ±4 " \
                               "allocations, ~40 ±3 frees>")
  end

  it "does not lose its footing where a difference of variances falls below zero" do
    expect(Memintro::Totals.new(1, 1, 1, 1, 0, 0, 0, Doubts.of_totals([1.0, 1.1, 1.0, 1.1]))
                           .live_bytes_standard_error).to eq(0.0)
  end

  describe Memintro::ThreadTotals do
    it "knows the bytes that were asked for exactly" do
      mine = described_class.new(1000, 400, 10, 4, [[100.0, 0.0], [4.0, 0.0], [1.0, 0.0]])
      expect(mine.to_h).to eq(allocated_bytes: 1000, freed_bytes: 400, allocations: 10, frees: 4, estimated: true,
                              freed_bytes_standard_error: 10.0, allocations_standard_error: 2.0,
                              frees_standard_error: 1.0, freed_bytes_interval: [380, 420],
                              allocations_interval: [6, 14], frees_interval: [2, 6])
      expect(mine.inspect).to eq("#<Memintro::ThreadTotals allocated 1000 B in ~10 ±2, freed ~400 B ±10 B in ~4 ±1>")
      none = mine - described_class.new(1000, 400, 10, 4, [[100.0, 0.0], [4.0, 0.0], [1.0, 0.0]])
      expect(none.to_h).to include(allocations: 0, allocations_standard_error: 0.0)
    end

    it "is unsure by a sample after none" do
      before = described_class.new(1000, 400, 10, 4, [[100.0, 70.0], [4.0, 6.0], [1.0, 5.0]])
      none = described_class.new(9000, 400, 10, 4, [[100.0, 90.0], [4.0, 7.0], [1.0, 5.0]]) - before
      expect(none.to_h).to include(allocated_bytes: 8000, allocations: 0, allocations_standard_error: 7.0,
                                   allocations_interval: [0, 34], freed_bytes_interval: [0, 432])
    end
  end
end
