# frozen_string_literal: true

require_relative "../spec_helper"

# A sandbox that comes later: a seccomp filter that refuses membarrier once tracking is under way.
RSpec.describe "a filter of system calls that refuses membarrier" do
  FILTER = Subprocess.read_program("late_filter/filter.rb")

  it "takes nothing from tracking, readings and forks" do
    before, after, readings, children, allocations, dropped =
      run_ruby(code: FILTER, requires: %w[memintro json]).must_succeed.json
    skip "this kernel has no membarrier" unless before.zero?

    expect([after, readings, children, dropped]).to eq([-1, 50, 20, 0])
    expect(allocations).to be_between(1_000, 1_020)
  end
end
