# frozen_string_literal: true

require_relative "../spec_helper"
require "objspace"
require "memintro"

RSpec.describe "Memintro::RSSSampler::Ring" do
  let(:ring) { Memintro::RSSSampler::Ring.new }
  let(:head) { Memintro::RSSSampler::Ring::HEAD }

  def bytes
    levels = ring.instance_variable_get(:@levels)
    [ring, levels, *levels, *levels.flatten(1)].sum { |object| ObjectSpace.memsize_of(object) }
  end

  def fill(count, from: 0)
    from.upto(from + count - 1) { |n| ring.add(n * 2.0, [n, n.even? ? 3 * n : nil, 7, nil, -n]) }
  end

  it "keeps the newest one by one" do
    fill(100)
    expect(ring.points.map { |point| point.first(4) }).to eq(Array.new(100) { |n| [n, n, n * 2.0, n * 2.0] })
  end

  [1, 129, 1_000, 43_200, 100_000].each do |count|
    it "covers each of #{count} samples once, with the least, sum and greatest of the covered ones" do
      fill(count)
      points = ring.points
      expect(points.map { |point| point[0] }).to eq([0, *points.map { |point| point[1] + 1 }][0..-2])
      expect(points.last[1]).to eq(count - 1)
      points.each do |first, last, *rest|
        range = (first..last).to_a
        evens = range.select(&:even?).map { |n| 3 * n }
        expect(rest).to eq([first * 2.0, last * 2.0, range.size, first, range.sum, last,
                            evens.size, evens.min, evens.sum, evens.max,
                            range.size, 7, 7 * range.size, 7, 0, nil, 0, nil, range.size, -last, -range.sum, -first])
      end
      expect(points.size).to be <= 112 * 9
    end
  end

  it "holds a day at 2 s in less than 300 kB, and ten days in no more" do
    fill(43_200)
    day = bytes
    expect(day).to be < 300_000
    expect(ring.points.map { |point| point[1] - point[0] + 1 }.max).to eq(256)
    fill(9 * 43_200, from: 43_200)
    expect(bytes).to be < 300_000
  end

  it "keeps the greatest standard error of estimates, in less than 450 kB" do
    5_000.times { |n| ring.add(n * 2.0, [n, nil, 7, 5 * n, -n], n >= 400 ? n : nil) }
    5_000.upto(43_199) { |n| ring.add(n * 2.0, [n, nil, 7, 5 * n, -n], n) }
    ring.points.each do |point|
      expect(point.drop(24)).to eq(point[1] < 400 ? [] : [point[1]])
      expect(point[16, 4]).to eq([point[1] - point[0] + 1, 5 * point[0], (point[0]..point[1]).sum * 5, 5 * point[1]])
    end
    expect(bytes).to be < 450_000
  end

  it "can be read while it is written to" do
    fill(2_000)
    writer = Thread.new { fill(20_000, from: 2_000) }
    reads = 0
    while writer.alive? || reads.zero?
      points = ring.points
      reads += 1
      expect(points.map { |point| point[0] }).to eq([0, *points.map { |point| point[1] + 1 }][0..-2])
      Thread.pass
    end
    expect(writer.join(60)).to be(writer)
  end
end
