# frozen_string_literal: true

require_relative "../spec_helper"
require "stringio"
require "memintro"
require "memintro/logging/limits"
require "memintro/logging/log_target"

RSpec.describe "Memintro::Limits" do
  let(:log) { StringIO.new }
  let(:seen) { Queue.new }
  let(:now) { [1_000.0] }

  def limits(rss: nil, growth: nil, on_limit: ->(crossing) { seen << crossing })
    Memintro::Limits.build(rss, growth, on_limit, Memintro::LogTarget.new(log), clock: -> { now[0] })
  end

  # The output of the started threads, after they have ended.
  def settled
    Thread.list.select { |thread| thread.name == "memintro-limits" }.each { |thread| thread.join(30) }
    Array.new(seen.size) { seen.pop }
  end

  it "calls the block once for each crossing of RSS, and again only after 5% below" do
    watch = limits(rss: 1_000)
    [900, 1_001, 1_500, 990, 1_200, 951, 1_300, 949, 1_001].each { |rss| watch.check(rss) }
    expect(settled.map(&:to_h)).to contain_exactly(
      { limit: :rss, value_bytes: 1_001, limit_bytes: 1_000, rss_bytes: 1_001, pid: Process.pid },
      { limit: :rss, value_bytes: 1_001, limit_bytes: 1_000, rss_bytes: 1_001, pid: Process.pid }
    )
  end

  it "computes growth an hour from ten minutes and more, despite outliers" do
    watch = limits(growth: 50_000)
    11.times do |minute|
      # 1,000 a minute, and one point far off.
      watch.check(minute == 5 ? 9_000_000 : 100_000 + (minute * 1_000))
      now[0] += 30
      watch.check(77_777_777) # within the minute: not looked at
      now[0] += 30
    end
    expect(settled).to match([have_attributes(limit: :growth, limit_bytes: 50_000,
                                              value_bytes: be_within(1_500).of(60_000))])
  end

  it "forgets growth that is older than an hour, and tells it when it comes back" do
    watch = limits(growth: 50_000)
    rss = 100_000
    [20, 120, 60].each_with_index do |minutes, phase|
      minutes.times do
        watch.check(phase == 1 ? rss : rss += 5_000)
        now[0] += 60
      end
    end
    expect(settled.map(&:limit)).to eq(%i[growth growth])
  end

  it "is not disturbed by a block that raises, nor by RSS that cannot be read" do
    watch = limits(rss: 10, on_limit: ->(_crossing) { raise "broken" })
    expect { watch.check(nil) || watch.check(11) || settled }
      .to output(/a line is lost, and perhaps others: RuntimeError: broken/).to_stderr_from_any_process
  end

  it "refuses wrong bounds in words, and is nothing without one" do
    expect(limits(on_limit: nil)).to be_nil
    expect { limits }.to raise_error(ArgumentError, /on_limit needs max_rss_bytes or max_growth_bytes_per_hour/)
    expect { limits(rss: 0) }.to raise_error(ArgumentError, /max_rss_bytes is 0; it must be an Integer from 1/)
    expect { limits(growth: "1GB") }.to raise_error(TypeError, /max_growth_bytes_per_hour is "1GB"/)
    expect { limits(rss: 1, on_limit: 5) }.to raise_error(TypeError, /on_limit is 5; it must have a method call/)
  end

  it "shows itself in short" do
    expect(Memintro::LimitExceeded.new(:rss, 2 << 20, 1 << 20, 2 << 20).inspect)
      .to eq("#<Memintro::LimitExceeded RSS is 2.0 MiB, over 1.0 MiB>")
    expect(Memintro::LimitExceeded.new(:growth, 2 << 20, 1 << 20, 5 << 20).inspect)
      .to eq("#<Memintro::LimitExceeded RSS grows in an hour by 2.0 MiB, over 1.0 MiB>")
  end
end
