# frozen_string_literal: true

require_relative "../spec_helper"
require "memintro/support/sequential_interval"

RSpec.describe Memintro::SequentialInterval do
  def interval(readings, limit: 10, lead: 5) = described_class.new(limit, lead, readings)

  it "decides when one side has its lead, and not before" do
    expect(interval([11] * 4).verdict).to be_nil
    expect(interval([11] * 5).verdict).to eq(:above)
    expect(interval([10] * 5).verdict).to eq(:below)
    expect(interval([11, 11, 1, 11, 11, 11]).verdict).to be_nil
    expect(interval([11, 11, 1, 11, 11, 11, 11]).verdict).to eq(:above)
  end

  it "has in its interval all limits for which it does not decide" do
    random = Random.new(1)
    300.times do
      readings = Array.new(random.rand(1..30)) { random.rand(20) }
      low, high = interval(readings).interval
      undecided = (-1..20).select { |limit| interval(readings, limit: limit).verdict.nil? }
      above = readings.size >= 5 ? (low...high).to_a : (-1..20).to_a
      expect(undecided).to eq(above)
      (-1..20).each do |limit|
        lead = readings.count { |reading| reading > limit } * 2 - readings.size
        verdict = lead >= 5 ? :above : (:below if lead <= -5)
        expect(interval(readings, limit: limit).verdict).to eq(verdict)
      end
    end
  end

  # The probability that one side leads by the lead before the other does, of each reading's own probability.
  def wrong(disturbed, lead) = 1 / (1 + (((1 - disturbed) / disturbed)**lead))

  it "is wrong as seldom as it says, in 20,000 tries with a small lead" do
    random = Random.new(2)
    wrong = 20_000.times.count do
      one = described_class.new(10, 3)
      one.add(random.rand < 0.25 ? 11 : 1) until one.verdict
      one.verdict == :above
    end
    expect(wrong / 20_000.0).to be_within(0.005).of(wrong(0.25, 3))
    expect(wrong(0.25, 10)).to be < 1 / 59_000.0
    expect(wrong(0.1, 5)).to be < 1 / 59_000.0
  end
end
