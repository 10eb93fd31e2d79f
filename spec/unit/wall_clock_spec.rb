# frozen_string_literal: true

require_relative "../spec_helper"
require "memintro"
require "memintro/support/wall_clock"

RSpec.describe "Memintro::WallClock" do
  it "says the same as Time, to the millisecond, in the same second and in the next" do
    clock = Memintro::WallClock.new
    [0, 7, 42, 999, 1_000, 1_001, 999, 1_767_225_599_999, 1_767_225_600_000, 1_767_225_600_100].each do |millisecond|
      allow(Process).to receive(:clock_gettime).with(Process::CLOCK_REALTIME, :millisecond).and_return(millisecond)
      expect(clock.text).to eq(Time.at(millisecond / 1_000, millisecond % 1_000, :millisecond).utc
                                   .strftime("%Y-%m-%dT%H:%M:%S.%LZ"))
    end
  end
end
