# frozen_string_literal: true

require "spec_helper"

# Numbers that a real VM takes hours to reach, with a stand-in that lends the hook lines and generations.
RSpec.describe "Limits of the hook's figures" do
  def vm(name, number, way: :live, **options) = native(program("vm.c"), name, number, way: way, **options)

  it "are beyond a million call sites" do
    expect(vm("lines", 1_000_000)).to include(lines: 1_000_000, right: 1_000_000, dropped: 0, missed_frees: 0)
  end

  it "are where max_sites says, and the rest is (other)" do
    figures = vm("lines", 10_000, env: { "VM_MAX_SITES" => "1000" })
    expect(figures[:known]).to be <= 1000
    expect(figures[:lines]).to be_between(900, 1000)
    expect(figures[:right]).to eq figures[:lines]
    expect(figures[:other]).to eq(10_000 - figures[:lines])
  end

  it "are beyond a hundred thousand generations" do
    expect(vm("ages", 100_000)).to include(max_lifespan: 100_000, age_total: be >= 100_000, age: 100_000)
  end

  it "saturate at the stated generation" do
    expect(vm("ages", 200_000)).to include(max_lifespan: 131_071, age: 131_071)
  end

  TruthDriver::WAYS.each do |way|
    it "are beyond a block of 5 GiB, never touched, #{way}" do
      size = (5 << 30) + 1
      figures = vm("giant", 5, way: way)
      expect(figures).to include(allocated: size, walked: size, count: 1, freed: (2 * size) + 4096, missed_frees: 0)
    end

    it "leave a process under RLIMIT_AS the address space that it lives in, #{way}" do
      command = "ulimit -v 1000000; exec #{program('truth.cc')} 100000 4 1"
      expect(run_command("sh", "-c", command, env: { "TRUTH_BARE" => "1" }).must_succeed.json).to eq(corrupt: 0)
      figures = run_command("sh", "-c", command, way: way).must_succeed.json
      expect(figures).to include(operations: 100_000, wrong_sites: 0, wrong_threads: 0, corrupt: 0, totals_agree: true)
    end

    it "keep within max_tracker_bytes, count what was dropped, and recover, #{way}" do
      figures = vm("budget", 1_000_000, way: way, env: { "VM_BUDGET" => (4 << 20).to_s })
      expect(figures[:tracker_at_full]).to be <= 4 << 20
      expect(figures[:dropped_at_full] + figures[:live_at_full]).to be_between(1_000_000, 1_000_100)
      expect(figures[:dropped_at_full]).to be > 500_000
      expect(figures[:live_at_empty]).to be_between(0, 20)
      expect(figures).to include(again: 123_456, missed_frees: 0)
    end
  end
end
