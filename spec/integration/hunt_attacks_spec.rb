# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/listening"

# A hunt in programs that fork, trap signals, track by themselves, and are no help otherwise.
RSpec.describe "Memintro.hunt, in programs that also track,", :listening do
  server = File.join(Subprocess::SCRIPTS, "hunt_server.rb")

  # The answer of a program that has hunt_server.rb.
  define_method(:hunted) do |code, **options|
    run_ruby(code: code, requires: ["memintro", "stringio", server], **options).must_succeed.json
  end

  define_method(:leak_line) { "#{server}:#{File.readlines(server).index { |line| line.start_with?('def leak') } + 1}" }

  it "is off unless it is asked for, and then one thread that is gone after the stop" do
    told = hunted(<<~RUBY)
      threads = -> { Thread.list.map(&:name).compact.grep(/memintro/) }
      before = [threads.call, Memintro.hunting?, Memintro.findings.to_a, Memintro.stop_hunting]
      hunt = begin_hunt
      serve(3)
      during = [threads.call, Memintro.hunting?, hunt.state, hunt.running?, hunt.looks]
      again = [begin_hunt.equal?(hunt), Memintro.hunt(every: 30, clock: CLOCK, logger: LOG).equal?(hunt), hunt.running?]
      stopped = Memintro.stop_hunting
      puts JSON.generate(before: before, during: during, again: again,
                         after: [stopped, threads.call, Memintro.hunting?, Memintro.stop_hunting])
    RUBY
    expect(told).to eq(before: [[], false, [], false], during: [["memintro-hunt"], true, "watching", true, 4],
                       again: [true, false, false], after: [true, [], false, false])
  end

  it "uses tracking that the program has, and leaves it on as it is" do
    told = hunted(<<~RUBY)
      Memintro.start(mode: :full, objects: true)
      kept = Memintro.untracked { nil } || Array.new(10) { "y" * 50_000 }
      begin_hunt
      serve(12) { Memintro.findings.any? }
      puts JSON.generate(sites: lines, words: Memintro.findings.map(&:tracking), tracking: Memintro.tracking?,
                         mode: Memintro.mode, still: Memintro["-e:2"].live_bytes, depth: Memintro::Native.stack_depth)
    RUBY
    expect(told).to include(sites: [leak_line], words: ["the program's own tracking"], tracking: true, mode: "full",
                            depth: 1, still: be >= 500_000)
  end

  it "gives way to a start during an investigation, which tracks as if it had been off, and stays on" do
    told = hunted(<<~RUBY)
      hunt = begin_hunt
      serve(12) { hunt.state == :investigating && Memintro.tracking? }
      serve(0.1)
      before = [Memintro.mode, Memintro.totals.allocations > 50]
      Memintro.start(mode: :full)
      fresh = Memintro.totals.allocations
      kept = Array.new(10) { "y" * 50_000 }
      serve(8) { Memintro.findings.any? }
      puts JSON.generate(before: before, fresh: fresh, tracking: Memintro.tracking?, mode: Memintro.mode, sites: lines,
                         depth: Memintro::Native.stack_depth, still: Memintro["-e:7"].live_bytes, errors: hunt.errors)
    RUBY
    expect(told).to include(before: ["sampled", true], fresh: be < 100, tracking: true, mode: "full", depth: 1,
                            errors: 0, sites: [leak_line], still: be >= 500_000)
  end

  it "is not disturbed by a stop, a track or a measurement during an investigation, and does not disturb them" do
    told = hunted(<<~RUBY)
      answers = [-> { Memintro.stop },
                 -> { Memintro.track { $kept = "z" * 70_001 }.live_bytes },
                 -> { Memintro.measure { $more = "z" * 80_001 }.allocated_bytes }].map do |disturb|
        KEPT.clear
        GC.start
        Memintro.stop_hunting
        hunt = begin_hunt
        serve(30) { hunt.state == :investigating && Memintro.tracking? }
        amid = hunt.state
        answer = disturb.call
        tracking = Memintro.tracking?
        serve(6) { hunt.state == :watching }
        [amid, answer.is_a?(Integer) && answer.to_i, tracking, Memintro.tracking?, hunt.errors]
      end
      puts JSON.generate(answers: answers)
    RUBY
    stop, track, measure = told[:answers]
    expect(stop).to eq(["investigating", false, false, false, 0])
    expect(track).to match(["investigating", be_between(70_001, 75_000), false, false, 0])
    expect(measure).to match(["investigating", be_between(80_001, 90_000), false, false, 0])
  end

  it "ends its tracking when it is stopped during an investigation: by the program, in a signal handler, in at_exit" do
    told = hunted(<<~RUBY)
      ways = [->(hunt) { hunt.stop },
              ->(hunt) { trap(:USR1) { hunt.stop }; Process.kill(:USR1, $$); sleep 0.01 while hunt.running? },
              ->(_) { trap(:USR1) { Memintro.stop_hunting }; Process.kill(:USR1, $$) }]
      told = ways.map do |way|
        hunt = begin_hunt
        serve(12) { hunt.state == :investigating && Memintro.tracking? }
        amid = [hunt.state, Memintro.tracking?]
        way.call(hunt)
        sleep 0.01 while Memintro.tracking?
        [*amid, Memintro.tracking?, hunt.state, Thread.list.size]
      end
      begin_hunt
      serve(12) { Memintro.hunt(clock: CLOCK, logger: LOG).state == :investigating && Memintro.tracking? }
      at_exit { puts JSON.generate(told: told, last: Memintro.tracking?) }
      at_exit { Memintro.stop_hunting }
    RUBY
    expect(told[:told]).to eq([["investigating", true, false, "stopped", 1]] * 3)
    expect(told[:last]).to be(false)
  end

  it "does not keep a program from ending during an investigation" do
    told = run_ruby(code: <<~RUBY, requires: ["memintro", "stringio", server]).must_succeed
      hunt = begin_hunt
      serve(12) { hunt.state == :investigating && Memintro.tracking? }
      puts hunt.state
    RUBY
    expect([told.stdout, told.stderr]).to eq(["investigating\n", ""])
  end

  it "survives a storm of forks: each child hunts on with the findings of its parent, and tracks nothing" do
    told = hunted(read_program("hunt_attacks/storm_of_forks.rb"))
    expect(told).to include(statuses: { "0": 40 }, running: true, errors: 0,
                            told: [[[true, 1, [leak_line], false, 0], 40]])
  end

  it "ends in a child the tracking that its parent had begun for an investigation, and finds the leak anew" do
    told = hunted(read_program("hunt_attacks/tracked_child.rb"))
    expect(told[:child]).to eq([false, [leak_line], true, false])
    expect(told[:parent]).to eq([[leak_line], true, false])
  end

  it "watches what is outside of Ruby's heap while there are Ractors, and goes on when they have ended" do
    told = hunted(<<~RUBY, flags: ["-W0"])
      hunt = begin_hunt
      ractor = Ractor.new { Ractor.receive }
      serve(3)
      during = [hunt.watched, hunt.errors]
      ractor.send(1)
      ractor.then { |one| one.respond_to?(:value) ? one.value : one.take }
      ractor = nil
      GC.start
      serve(14) { Memintro.findings.any? }
      puts JSON.generate(during: during, errors: hunt.errors, found: Memintro.findings.size)
    RUBY
    expect(told).to eq(during: [1, 0], errors: 0, found: 1)
  end

  it "lives on when a Ractor begins during an investigation" do
    told = hunted(<<~RUBY, flags: ["-W0"])
      hunt = begin_hunt
      serve(12) { hunt.state == :investigating && Memintro.tracking? }
      10.times { Ractor.new { Array.new(1_000) { "x" * 50 }.size }.then { |one| one.respond_to?(:value) ? one.value : one.take } }
      serve(6) { hunt.state == :watching }
      puts JSON.generate(errors: hunt.errors, state: hunt.state, tracking: Memintro.tracking?)
    RUBY
    expect(told).to eq(errors: 0, state: "watching", tracking: false)
  end

  it "follows classes whose name raises, is a lie, or is none, and counts a hundred thousand of them" do
    told = hunted(<<~RUBY)
      Liar = Class.new { def self.name = raise("no"); def self.to_s = raise("no"); def self.inspect = raise("no")
                         def self.hash = raise("no"); def self.==(_) = raise("no")
                         def initialize = @text = "t" * 1_000 }
      nameless = Class.new { def initialize = @text = "t" * 900 }
      classes = Array.new(100_000) { Class.new }
      kept = classes.first(20_000).map(&:new)
      hunt = begin_hunt
      serve(20, leaks: false, every: -> { 60.times { KEPT << Liar.new << nameless.new } }) { Memintro.findings.any? }
      puts JSON.generate(errors: hunt.errors, error: hunt.last_error&.message, found: Memintro.findings.map(&:what),
                         sites: lines, watched: hunt.watched, share: hunt.cpu_share, kept: kept.size)
    RUBY
    expect(told).to include(errors: 0, watched: be <= 500, kept: 20_000)
    expect(told[:found].size).to eq(1)
    expect(told[:sites].first).to match(/\A-e:[34]\z/)
  end

  it "says under MEMINTRO_DISABLE once that it does nothing, for any arguments" do
    result = run_ruby(code: <<~RUBY, requires: ["memintro"], env: { "MEMINTRO_DISABLE" => "1", "MEMINTRO_HUNT" => "1" })
      hunt = Memintro.hunt(every: "nonsense", on_finding: 5)
      p hunt.running?, hunt.state, hunt.findings.size, Memintro.hunting?, Thread.list.size, hunt.stop
    RUBY
    expect(result.must_succeed.stdout).to eq("false\n:stopped\n0\nfalse\n1\nnil\n")
    expect(result.stderr).to match(/\Amemintro: MEMINTRO_DISABLE=1 is set, so nothing is tracked in .*\n\z/)
  end
end
