# frozen_string_literal: true

require_relative "../spec_helper"
require "memintro"

RSpec.describe Memintro::RSSSampler do
  it "reads every two seconds by default, and leaves pss out" do
    sampler = described_class.new
    expect(sampler.interval).to eq(2)
    expect(sampler.take.pss).to be_nil
  end

  # A clock that goes on only while a sample is taken (0.5 s) and while nothing is done (as long as was asked for, and
  # late by 0.25 s). Answers when samples began, in seconds after the first.
  def beginnings(sampler, count, taking: Hash.new(0.5))
    sample = sampler.take
    now = begun = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    allow(Process).to receive(:clock_gettime).and_call_original
    allow(Process).to receive(:clock_gettime).with(Process::CLOCK_MONOTONIC) { now }
    began = []
    allow(sampler).to receive(:take) do
      began << (now - begun).round(3)
      now += taking[began.size]
      sample
    end
    stop = Object.new
    stop.define_singleton_method(:wait) { |seconds| (now += seconds.zero? ? 0 : seconds + 0.25) && began.size >= count }
    sampler.send(:run, stop)
    began
  end

  it "keeps to its schedule, however long a sample takes and however late it wakes up" do
    expect(beginnings(described_class.new, 6)).to eq([0, 2.25, 4.25, 6.25, 8.25, 10.25])
    expect(beginnings(described_class.new(interval: 10), 4)).to eq([0, 10.25, 20.25, 30.25])
  end

  it "makes up for no sample that it had no time for" do
    late = Hash.new(0.5).merge(2 => 10)
    # The second takes ten seconds: the third comes at once, and the schedule goes on from there.
    expect(beginnings(described_class.new, 5, taking: late)).to eq([0, 2.25, 12.25, 14.5, 16.5])
  end

  describe "#points" do
    # So few places that seven samples make a point of the oldest four.
    before { stub_const("Memintro::RSSSampler::Ring::PLACES", 2) }

    # The oldest four of seven samples together.
    def oldest(*rows)
      sampler = described_class.new
      ring = sampler.instance_variable_get(:@ring)
      7.times { |n| ring.add(100.0 + n, rows[n] || [1, nil, 1, nil, 1]) }
      sampler.points.first
    end

    it "has of each figure the least, mean and greatest of the samples that have it" do
      point = oldest([100, nil, 7, nil, 0], [403, 10, 7, nil, 0], [200, nil, 8, nil, 1], [300, 25, 7, nil, 1])
      expect([point.count, point.first, point.last]).to eq([4, 100.0, 103.0])
      expect(point[:rss].to_h).to eq(min: 100, mean: 250.75, max: 403)
      expect(point[:pss].to_h).to eq(min: 10, mean: 17.5, max: 25)
      expect(point[:live_objects].to_h).to eq(min: 7, mean: 7.25, max: 8)
      expect(point[:gc_time_ns].to_h).to eq(min: 0, mean: 0.5, max: 1)
      expect(point[:malloc_live_bytes]).to be_nil
      expect(point.to_h).to include(count: 4, pss: { min: 10, mean: 17.5, max: 25 }, malloc_live_bytes: nil)
    end
  end
end
