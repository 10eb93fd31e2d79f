# frozen_string_literal: true

require_relative "../spec_helper"

# A test that fails now and then is worth nothing: each kind of block is checked again and again, without one mistake.
RSpec.describe "Checks for leaks" do
  def checks(count, kind, **options)
    run_ruby("leak_checks.rb", count, kind, requires: [], deadline_seconds: 3_000, **options).must_succeed.json
  end

  it "pass 100 times for clean blocks: caches that fill, arrays that grow, collections at any time" do
    expect(checks(100, "clean")).to include(leaks: 0, wrong: {}, mode: "off")
  end

  %w[native object].each do |kind|
    it "fail 100 times for a leak of 64 bytes an iteration, #{kind}" do
      expect(checks(100, kind)).to include(leaks: 100, wrong: {}, mode: "off")
    end

    it "fail 2,000 times for a leak of 64 bytes an iteration, #{kind}", :long, deadline_seconds: 3_600 do
      expect(checks(2_000, kind)).to include(leaks: 2_000, wrong: {}, mode: "off")
    end
  end

  it "pass 2,000 times for clean blocks", :long, deadline_seconds: 3_600 do
    expect(checks(2_000, "clean")).to include(leaks: 0, wrong: {}, mode: "off")
  end

  # The check's result for each of these blocks: whether it leaks, and bytes of an iteration.
  def found(code)
    run_ruby(code: <<~RUBY, requires: %w[fiddle json memintro memintro/measure/leak_check]).must_succeed.json
      def check(iterations: 100, warm_up: 20, per_iteration: 0, &block)
        Memintro::LeakCheck.new(iterations: iterations, warm_up: warm_up, per_iteration: per_iteration).run(block)
      end
      def blocks(size) = Fiddle.malloc(size)
      #{code}
    RUBY
  end

  it "tell a full cache from a leak, and a leak beside a full cache" do
    full, beside = found(<<~'RUBY')
      fill = -> { (ring = []) && proc { ring << "x" * 100; ring.shift if ring.size > 1_000 } }
      turn, other = fill.call, fill.call
      leaky = proc { other.call; blocks(64) }
      results = [check(warm_up: 1_200, &turn), check(warm_up: 1_200, &leaky)]
      puts JSON.generate(results.map { |result| [result.above?, result.per_iteration.round] })
    RUBY
    expect(full.first).to be(false)
    expect(beside).to match([true, be_within(8).of(64)])
  end

  it "are right where the program has disabled the collector, and leave it so" do
    clean, native, disabled = found(<<~'RUBY')
      GC.disable
      results = [check { Array.new(50) { "x" * 100 } }, check { Array.new(50) { "x" * 100 }; blocks(64) }]
      puts JSON.generate([*results.map { |result| [result.above?, result.per_iteration] }, GC.enable])
    RUBY
    expect([clean.first, native, disabled]).to eq([false, [true, 64.0], true])
  end

  # Ruby maps the stacks of fibers itself, and uses them again.
  it "count what is resident of the stacks of fibers that stay, and of no others" do
    answers = found(<<~'RUBY')
      def resident = Integer(File.read("/proc/self/statm").split[1]) * 4_096
      keep = []
      turns = 0
      before = resident
      kept = check { turns += 1; keep << [1, 2].each.tap(&:next) }
      grown = (resident - before).fdiv(turns)
      last = nil
      others = [check { [1, 2].each.next }, check { last = Fiber.new { Fiber.yield }.tap(&:resume) },
                check { Fiber.new { 1 }.resume }]
      puts JSON.generate(kept: [kept.above?, kept.per_iteration, kept.stacks], grown: grown,
                         others: others.map(&:above?))
    RUBY
    leaks, bytes, stacks = answers[:kept]
    expect([leaks, bytes - stacks]).to match([true, be_between(600, 2_500)])
    # The rest of RSS is tracking's memory, and pages of Ruby's heap.
    expect(stacks).to be_between(8_192, 24_576).and(be_between(0.4 * answers[:grown], answers[:grown]))
    expect(answers[:others]).to eq([false, false, false])
  end

  it "find leaks of all kinds, and allow what is allowed" do
    answers = found(<<~'RUBY')
      turns = 0
      every_second = proc { blocks(128) if (turns += 1).even? }
      compacting = proc { GC.compact if (turns += 1) % 50 == 0; blocks(64) }
      keep = {}
      keys = proc { keep[(turns += 1)] = nil }
      thread = nil
      elsewhere = proc { Thread.new { blocks(64) }.join }
      cases = [check(&every_second), check(&compacting), check { keep[Object.new] = "x" * 50 }, check(&elsewhere),
               check(per_iteration: 64) { blocks(64) }, check(per_iteration: 63) { blocks(64) },
               check(iterations: 10, warm_up: 0) { blocks(64) }, check(iterations: 1_000) { blocks(1) }]
      puts JSON.generate(cases.map { |result| [result.above?, result.per_iteration.to_f.round(1)] })
    RUBY
    expect(answers[0]).to match([true, be_within(13).of(64)])
    expect(answers[1]).to match([true, be_within(13).of(64)])
    expect(answers[2][0]).to be(true)
    expect(answers[3]).to match([false, anything])
    expect(answers[4..]).to eq([[false, 64.0], [true, 64.0], [true, 64.0], [true, 1.0]])
  end
end
