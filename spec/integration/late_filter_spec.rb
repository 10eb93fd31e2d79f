# frozen_string_literal: true

require_relative "../spec_helper"

# A sandbox that comes later: a seccomp filter that refuses membarrier once tracking is under way.
RSpec.describe "a filter of system calls that refuses membarrier" do
  FILTER = <<~'RUBY'
    require "fiddle"
    libc = Fiddle.dlopen(nil)
    function = ->(name, *types) { Fiddle::Function.new(libc[name], types, Fiddle::TYPE_LONG) }
    long = Fiddle::TYPE_LONG
    number = RUBY_PLATFORM.start_with?("aarch64") ? 283 : 324
    # Loads the number, answers EPERM to this one, lets all others pass.
    code = [[0x20, 0, 0, 0], [0x15, 0, 1, number], [0x06, 0, 0, 0x00050001], [0x06, 0, 0, 0x7fff0000]]
    code = Fiddle::Pointer.to_ptr(code.map { |one| one.pack("SCCL") }.join)
    filter = Fiddle::Pointer.to_ptr([4, code.to_i].pack("Sx6Q"))
    prctl = function["prctl", long, long, long, long, long]
    membarrier = -> { function["syscall", long, long, long].call(number, 8, 0) }

    Memintro.start
    before = membarrier.call
    prctl.call(38, 1, 0, 0, 0).zero? or abort "no new privileges"
    prctl.call(22, 2, filter.to_i, 0, 0).zero? or abort "no filter"
    threads = Array.new(4) { Thread.new { 20_000.times { |i| "x" * (1_000 + (i % 100)) } } }
    readings = Array.new(50) { Memintro.top(3).size.positive? }
    children = Array.new(20) do
      pid = fork { exit!(Memintro.tracking? && Memintro.mark.nil? ? 0 : 1) }
      Process.wait2(pid).last.exitstatus
    end
    threads.each(&:join)
    held = Memintro.thread_totals
    kept = Array.new(1_000) { "y" * 5_000 }
    grown = Memintro.thread_totals - held
    puts JSON.generate([before, membarrier.call, readings.count(true), children.count(0), grown.allocations, Memintro.totals.dropped])
  RUBY

  it "takes nothing from tracking, readings and forks" do
    before, after, readings, children, allocations, dropped =
      run_ruby(code: FILTER, requires: %w[memintro json]).must_succeed.json
    skip "this kernel has no membarrier" unless before.zero?

    expect([after, readings, children, dropped]).to eq([-1, 50, 20, 0])
    expect(allocations).to be_between(1_000, 1_020)
  end
end
