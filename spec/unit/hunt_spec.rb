# frozen_string_literal: true

require_relative "../spec_helper"
require "memintro"
require "stringio"

Memintro::Loader.need(:Hunt, :Finding)

# The hunt on figures that are made up: days of a server in a second. spec/integration/hunt_spec.rb has real ones.
RSpec.describe Memintro::Hunt do
  include HuntSimulation

  mib = HuntSimulation::MIB

  around do |example|
    kept = described_class.kept
    described_class.kept = [].freeze
    example.run
  ensure
    described_class.kept = kept
  end

  def leak(server, rate, deviation = 0.1, from: 0)
    noise = server.noise(deviation * HuntSimulation::MIB)
    server.figure(:class, "Leak") do |at|
      ((5 + (rate * [at - from, 0].max)) * HuntSimulation::MIB) + noise.call
    end
  end

  def minutes_until(finding, event = :found_at) = (finding[event] - Time.at(1_800_000_000)) / 60

  def findings(minutes, **options, &block)
    described_class.kept = [].freeze
    simulate(minutes, **options, &block).first.findings
  end

  describe "of a day of a server that does not leak" do
    { 1..10 => {}, 11..30 => { long: true } }.each do |days, tags|
      it "finds nothing on any day (days #{days} of a start, caches, traffic, garbage and peaks)", **tags do
        hunts = days.map { |seed| simulate(1_440, seed: seed, &:healthy).first }
        expect(described_class.kept.map(&:sentence)).to eq([])
        expect(hunts.map(&:looks)).to all(be > 1_350)
        # An investigation costs a collection or more.
        expect(hunts.map(&:investigations)).to all(be <= 20)
        expect(hunts.map(&:cpu_share)).to all(be <= 0.002)
      end
    end

    it "takes a rise of garbage for none after one collection, and tracks nothing for it" do
      hunt, server, = simulate(600) do |one|
        one.figure(:class, "String") { |at| (40 + (0.7 * (at - one.collected_at))) * mib }
      end
      expect(hunt.findings).to be_empty
      expect(server.collections).to eq(hunt.investigations).and(be_between(2, 8))
    end

    it "takes what fills up within five minutes for no growth, and a start that slows down for none" do
      [2, 3, 4, 5].each do |full|
        found = findings(300) do |server|
          server.figure(:class, "Lru") { |at| 12 * mib * ((at - 60.3) / full).clamp(0, 1) }
        end
        expect(found).to be_empty
      end
      [2, 5, 10].each do |slow|
        expect(findings(300) { |server| server.figure(:class, "Rails") { |at| 60 * mib * (1 - Math.exp(-at / slow)) } })
          .to be_empty
      end
    end
  end

  describe "of a server that leaks" do
    it "finds a megabyte a minute within ten minutes, alone and among traffic that varies" do
      found = (1..20).map do |seed|
        [findings(40, seed: seed) { |server| leak(server, 1) },
         findings(40, seed: seed) { |server| leak(server.healthy, 1) }]
      end
      expect(found.flatten(1).map { |all| all.map(&:what) }).to all(eq(["Leak"]))
      alone, among = found.map { |pair| pair.map { |all| minutes_until(all.first) } }.transpose
      expect([alone, among].map { |all| all.count { |minutes| minutes <= 10 } }).to all(be >= 19)
      # A rise that was refuted by chance is tested again.
      expect(alone + among).to all(be <= 30)
      found.flatten.each do |finding|
        low, high = finding.bytes_per_minute_interval
        expect(low).to be > 0
        expect(finding.bytes_per_minute).to be_between(low, high).and(be_within(0.3 * mib).of(mib))
      end
    end

    it "finds a leak that slows down as the work does, and is sure of it when it has grown as much again" do
      found = (1..10).map do |seed|
        findings(240, seed: seed) do |server|
          noise = server.noise(0.2 * mib)
          server.load { |at| 2_000_000 / Math.sqrt(at + 0.2) }
          server.figure(:class, "Leak") { |at| (14 * mib * Math.sqrt(at)) + noise.call }
        end
      end
      expect(found.map { |all| all.map { |one| [one.what, one.slows_down, one.ended_at] } })
        .to all(eq([["Leak", true, nil]]))
      found.flatten!
      expect(found.map { |one| minutes_until(one) }).to all(be <= 10)
      expect(found.map { |one| minutes_until(one, :confirmed_at) }).to all(be_between(18, 25))
      expect(found.first.certainty).to match(/\AIt was confirmed at 2027-01-15 \S+: it had grown as much again\.\z/)
    end

    it "is not sure of a start that slows down as the work does, tells no one, and sees its end" do
      [2, 5, 7, 10].each do |slow|
        log = StringIO.new
        all = findings(300, logger: log) do |server|
          noise = server.noise(0.1 * mib)
          server.load { |at| 100_000 + (2_000_000 * Math.exp(-at / slow)) }
          server.figure(:class, "Rails") { |at| (60 * mib * (1 - Math.exp(-at / slow.to_f))) + noise.call }
        end
        expect(all.map { |one| [one.slows_down, one.confirmed_at] }.uniq - [[true, nil]]).to eq([])
        expect(all.map(&:ended_at)).to all(be)
        expect(log.string).to eq("")
        expect(all.map(&:certainty)).to all(match(/\ANot confirmed\. It has ended at 2027-01-15 \S+\.\z/))
      end
    end

    it "names the next look for steady growth, and confirms growth by the same amount again" do
      log = StringIO.new
      told = []
      hunt, = simulate(12, logger: log, on_finding: ->(one) { told << one }) { |server| leak(server, 1) }
      finding = hunt.findings.first
      expect(finding.certainty)
        .to match(/\ANot confirmed yet: it has grown for \d\.\d minutes and has not slowed down\. A cache that fills /)
      expect(finding.look_again_at - finding.found_at).to be_within(60).of(1.5 * (finding.found_at - finding.since))
      expect(told.map(&:what)).to eq(["Leak"])

      sure = findings(40, logger: log, on_finding: ->(one) { told << one }) { |server| leak(server, 1) }.first
      expect(minutes_until(sure, :confirmed_at)).to be_between(12, 18)
      # It is reported once.
      expect([told.size, log.string.lines.size]).to eq([2, 2])

      full = findings(120) do |server|
        server.figure(:class, "Lru") { |at| 12 * mib * ((at - 20.3) / 10).clamp(0, 1) }
      end
      expect(full.map { |one| [one.slows_down, one.confirmed_at] }).to eq([[false, nil]])
      expect(full.first.ended_at).to be
    end

    it "does not take work that comes in bursts for work that becomes less" do
      found = (1..10).flat_map do |seed|
        findings(20, seed: seed) do |server|
          noise = server.noise(0.25)
          server.load { |_| 1_000_000 * (1 + noise.call) }
          leak(server, 1)
        end
      end
      expect(found.map { |one| [one.what, one.slows_down] }).to eq([["Leak", false]] * 10)
    end

    it "finds a leak that begins after ten hours, within fifteen minutes of its beginning" do
      (1..5).each do |seed|
        found = findings(720, seed: seed) { |server| leak(server.healthy, 1, from: 600) }
        expect(found.map(&:what)).to eq(["Leak"])
        expect(minutes_until(found.first)).to be_between(603, 615)
        expect((found.first.since - Time.at(1_800_000_000)) / 60).to be_between(596, 607)
      end
    end

    it "finds a slow one within two hours: 50 KiB a minute, 72 MB a day" do
      (1..5).each do |seed|
        found = findings(240, seed: seed) { |server| leak(server, 0.05) }
        expect(found.map(&:what)).to eq(["Leak"])
        expect(minutes_until(found.first)).to be <= 120
      end
    end

    it "tells of it once while it goes on, says when it has ended, and tells of it again if it begins again" do
      found = findings(1_200) do |server|
        server.figure(:class, "Leak") { |at| mib * (5 + [at, 300].min + (at > 600 ? at - 600 : 0)) }
      end
      expect(found.map(&:what)).to eq(%w[Leak Leak])
      expect(found.first.ended_at - Time.at(1_800_000_000)).to be_between(300 * 60, 310 * 60)
      expect(found.last.ended_at).to be_nil
      expect(minutes_until(found.last)).to be_between(604, 610)
    end

    it "has memory outside of Ruby's heap wait for the class that it belongs to" do
      found = findings(60) do |server|
        noise = server.noise(0.2 * mib)
        leak(server, 1)
        server.figure(:outside, "malloc") { |at| ((60 + at) * mib) + noise.call }
      end
      expect(found.map(&:what)).to eq(["Leak"])
    end

    it "says of memory outside of Ruby's heap that it grows by itself" do
      found = findings(60) do |server|
        server.figure(:class, "Steady") { 10 * mib }
        server.figure(:outside, "malloc") { |at| (60 + at) * mib }
      end
      expect(found.map(&:what)).to eq(["malloc"])
    end

    it "keeps the last twenty" do
      findings(1_000) do |server|
        25.times { |i| server.figure(:class, "Leak#{i}") { |at| mib * (5 + [at - (i * 20), 0].max) } }
      end
      expect(described_class.kept.size).to eq(20)
      expect(described_class.kept.last.what).to eq("Leak24")
    end
  end

  describe "as for its share of a core" do
    it "looks less often if a look is dear, so that no look begins above the share" do
      clock = HuntSimulation::FastClock.new
      server = HuntSimulation::Server.new(clock, 1, look_cpu: 1.5)
      server.figure(:class, "Steady") { 10 * mib }
      hunt = described_class.new(every: 60, logger: StringIO.new, clock: clock, watch: server,
                                 tracker: HuntSimulation::NoTracker.new, inquiry: HuntSimulation::NoInquiry.new)
      stop = HuntSimulation::Until.new(clock, 10_000)
      shares = Array.new(20) do
        hunt.look(stop)
        clock.wait(stop, hunt.pause)
        hunt.cpu_share
      end
      expect(shares).to all(be <= 0.002 + 1e-9)
      expect(clock.waits).to all(be_within(1e-6).of(750))
      expect(hunt.cpu_seconds).to be_within(1e-9).of(30)
      expect(hunt.to_h).to include(looks: 20, cpu_seconds: 30.0, cpu_share: 0.002, pause_s: 60.0)
    end

    it "looks and reads at even distances, however long one takes in a process that is busy" do
      clock = HuntSimulation::FastClock.new
      server = HuntSimulation::Server.new(clock, 1)
      leak(server, 1)
      begun = []
      server.define_singleton_method(:read) do |minute|
        begun << minute
        super(minute).tap { clock.now += 10 }
      end
      hunt = described_class.new(every: 60, logger: StringIO.new, clock: clock, watch: server,
                                 tracker: HuntSimulation::NoTracker.new, inquiry: HuntSimulation::NoInquiry.new)
      hunt.send(:run, HuntSimulation::Until.new(clock, 9))
      expect(hunt.findings.map(&:what)).to eq(["Leak"])
      seconds = begun.each_cons(2).map { |before, after| ((after - before) * 60).round }
      # Looks, the collection with which the investigation begins, and its readings, with another collection in between.
      expect(seconds.take_while { |one| one == 60 }.size).to be >= 5
      expect(seconds.drop_while { |one| one == 60 }.take(3)).to eq([10, 30, 20])
    end

    it "looks at the time that a finding names, even over budget, and names a later one" do
      hunt, _, clock = simulate(9) do |server|
        server.figure(:class, "Leak") { |at| 12 * mib * (at / 10).clamp(0, 1) }
      end
      budget = hunt.instance_variable_get(:@budget)
      budget.instance_variable_set(:@spent, 20.0)
      finding = hunt.findings.first
      expect(hunt.pause).to be_within(1e-3).of(finding.look_again_at - clock.time)
      clock.now += hunt.pause
      hunt.look(HuntSimulation::Until.new(clock, 10_000))
      later = hunt.findings.first
      expect(later.look_again_at - clock.time).to be_within(1).of(clock.time - finding.found_at)
      expect([later.confirmed_at, hunt.pause]).to match([nil, be_within(1e-3).of(later.look_again_at - clock.time)])
      # It investigates nothing before it has paid.
      expect(hunt.investigations).to eq(1)
    end

    it "pays an investigation back before it looks again" do
      clock = HuntSimulation::FastClock.new
      budget = described_class::Budget.new(clock)
      clock.now += 600
      budget.charge { clock.cpu += 0.5 }
      expect(budget.pause(60)).to eq(60)
      # For the first copy only the length of the wait is known; for the last one, more.
      budget.charge { budget.charge_copy { clock.now += 2 } }
      [[1, 0.25], [0.75, 9]].each do |seconds, cpu|
        budget.charge_copy do
          clock.now += seconds
          clock.children_cpu += cpu
        end
      end
      expect(budget.spent).to be_within(1e-9).of(3.5)
      expect(budget.pause(60)).to be_within(1e-6).of(1_750 - 603.75)
    end
  end

  describe "with a program around it that is no help" do
    def hunted(logger: StringIO.new, on_finding: nil)
      clock = HuntSimulation::FastClock.new
      server = HuntSimulation::Server.new(clock, 1)
      leak(server, 1)
      hunt = described_class.new(every: 60, logger: logger, on_finding: on_finding, clock: clock, watch: server,
                                 tracker: HuntSimulation::NoTracker.new, inquiry: HuntSimulation::NoInquiry.new)
      stop = HuntSimulation::Until.new(clock, 20)
      loop do
        hunt.send(:attempt) { hunt.look(stop) }
        break if clock.wait(stop, hunt.pause)
      end
      hunt
    end

    it "logs any exception of on_finding, and goes on" do
      [RuntimeError.new("no"), NotImplementedError.new("no"), SystemExit.new, Interrupt.new("no")].each do |error|
        described_class.kept = [].freeze
        log = StringIO.new
        hunt = hunted(logger: log, on_finding: ->(_) { raise error })
        expect([hunt.findings.size, hunt.errors]).to eq([1, 0])
        expect(hunt.looks).to be > 10
        expect(log.string.lines).to match([/\Amemintro: Leak grows by ~.* a minute .*\. Look at|\Amemintro: Leak grows/,
                                           /\Amemintro: on_finding raised #{error.class}: /])
      end
    end

    it "does not wait for an on_finding that hangs, and says so" do
      stub_const("Memintro::Hunt::Callback::PATIENCE", 0.05)
      log = StringIO.new
      hanging = []
      hunt = hunted(logger: log, on_finding: ->(_) { (hanging << Thread.current) && sleep })
      expect(hunt.looks).to be > 10
      expect(log.string).to include("on_finding has not returned after 0.05 s; the hunt continues")
      callback = hunt.instance_variable_get(:@callback)
      callback.call(hunt.findings.first)
      expect(log.string).to include("on_finding has not returned from an earlier finding, and was not called")
      expect(hanging.size).to eq(1)
    ensure
      hanging.each(&:kill)
    end

    it "goes on if the logger raises, and keeps what it found" do
      [StandardError, NoMemoryError, SystemExit].each do |error|
        described_class.kept = [].freeze
        logger = Object.new
        logger.define_singleton_method(:info) { |_| raise error, "no" }
        hunt = hunted(logger: logger)
        expect([hunt.findings.size, hunt.errors]).to eq([1, 0])
      end
    end

    it "counts looks that fail, and logs the first one" do
      clock = HuntSimulation::FastClock.new
      watch = Object.new
      def watch.read(_) = raise(Memintro::ProcError, "no /proc")
      log = StringIO.new
      hunt = described_class.new(logger: log, clock: clock, watch: watch, tracker: HuntSimulation::NoTracker.new)
      3.times { hunt.send(:attempt) { hunt.look(HuntSimulation::Until.new(clock, 1)) } }
      expect([hunt.errors, hunt.last_error.message]).to eq([3, "no /proc"])
      expect(log.string).to eq("memintro: a look has failed, and perhaps others: Memintro::ProcError: no /proc\n")
    end
  end

  describe "arguments" do
    it "are checked" do
      expect { described_class.new(every: "60") }.to raise_error(TypeError, /every is "60"; it must be a number/)
      expect { described_class.new(every: 0.5) }.to raise_error(ArgumentError, /every is 0.5; it must be from 1 to/)
      expect { described_class.new(on_finding: 5) }.to raise_error(TypeError, /on_finding is 5; it must have a method/)
      expect { described_class.new(logger: 5) }.to raise_error(TypeError, /logger is 5; it must have/)
    end
  end
end

RSpec.describe Memintro::Hunt::Inquiry do
  figures = { what: "Term", kind: :ruby_objects, bytes_per_minute: 1, bytes_per_minute_interval: [1, 1], grown_bytes: 1,
              since: Time.at(0), found_at: Time.at(60), look_again_at: Time.at(90), pid: 1,
              notes: ["no account could be taken: late", "who holds it could not be asked: late"] }

  it "asks again who holds the objects of a finding that had no answer, and only then" do
    inquiry = described_class.new(Memintro::Hunt::Budget.new(HuntSimulation::FastClock.new))
    tracker = Memintro::Hunt::Tracker.new
    asked = []
    way = Memintro::HeldPath.new("objects" => 1_200, "root" => "vm", "text" => "CACHE")
    allow(Memintro).to receive(:holders) do |name, **|
      asked << name
      Struct.new(:groups).new([way])
    end
    expect(inquiry.again(Memintro::Finding.new(**figures), tracker))
      .to eq(held_by: "CACHE", holders: ["1,200: CACHE"],
             notes: ["no account could be taken: late"])
    expect([{ held_by: "X" }, { kind: :malloc_native }].map do |other|
      inquiry.again(Memintro::Finding.new(**figures, **other), tracker)
    end).to eq([{}, {}])
    allow(Memintro).to receive(:holders).and_raise(Memintro::BusyError, "no")
    expect(inquiry.again(Memintro::Finding.new(**figures), tracker)).to eq({})
    expect(asked).to eq(["Term"])
  end
end

RSpec.describe Memintro::Hunt::Growth do
  mib = HuntSimulation::MIB

  # How many of so many courses are taken for a rise, at any of 60 values.
  def rises(courses, seed)
    random = Random.new(seed)
    Array.new(courses).count do
      value = yield(random)
      growth = described_class.new
      60.times.any? { |minute| growth.add(minute, value.call(minute), 1).rise(0) }
    end
  end

  def gauss(random) = Math.sqrt(-2 * Math.log(1 - random.rand)) * Math.cos(2 * Math::PI * random.rand)

  it "takes a level that varies for none, but in one of 500 hours at most" do
    expect(rises(1_000, 1) { |random| ->(_) { 100 + gauss(random) } }).to be <= 2
  end

  it "takes a level that depends on the one before for growth in less than 3 of 100 hours" do
    found = rises(1_000, 2) do |random|
      level = 0
      ->(_) { level = (0.9 * level) + gauss(random) }
    end
    expect(found).to be < 30
  end

  it "takes a level that wanders for growth in less than 1 of 10 hours, so that an investigation must decide" do
    found = rises(1_000, 3) do |random|
      level = 0
      ->(_) { level += gauss(random) }
    end
    expect(found).to be_between(1, 100)
  end

  it "finds every leak whose steps vary by a quarter, within an hour" do
    expect(rises(250, 4) { |random| ->(minute) { (minute * mib) + (0.25 * mib * gauss(random)) } }).to eq(250)
  end

  # Minutes until these values, one a minute, show a rise.
  define_method(:minutes_to_rise) do |values, loads = [], resident: Float::INFINITY|
    growth = described_class.new
    values.each_with_index.find do |value, minute|
      growth.add(minute, value, loads.fetch(minute, 1)).rise(mib, resident)
    end&.last
  end

  it "does not wait until a first step that is greater than all others is out of sight" do
    random = Random.new(6)
    level = 0
    values = Array.new(12) { |minute| (level += minute == 1 ? 8 * mib : mib + (0.05 * mib * gauss(random))) }
    expect(minutes_to_rise(values)).to eq(6)
  end

  it "does not take work for the cause of growth in memory that is mostly reserved" do
    random = Random.new(7)
    loads = Array.new(20) { 200_000 * (1 + (0.006 * gauss(random))) }
    values = Array.new(20) { |minute| (440 + (1.12 * minute) + (0.03 * gauss(random))) * mib }
    expect(minutes_to_rise(values, loads, resident: 30 * mib)).to eq(5)
    expect(minutes_to_rise(values, loads) || 20).to be > 8
  end

  it "takes a rise in step with the work for none, and one that goes beyond it for one" do
    random = Random.new(5)
    growing = [1.0, 4.0].map do |factor|
      growth = described_class.new
      (0..60).any? do |minute|
        load = 100 * (1 + (minute * 0.01)) * (1 + (0.01 * gauss(random)))
        growth.add(minute, 50 * mib * (1 + (factor * minute * 0.01)), load).rise(mib)
      end
    end
    expect(growing).to eq([false, true])
  end
end

RSpec.describe Memintro::Hunt::RiseTest do
  reading = Struct.new(:minute, :figures)
  rise = Memintro::Hunt::Growth::Rise.new(0, 5, 0, 5_000, 1_000, 500, 1_500, 0)
  key = [:class, "A"]

  def gauss(random) = Math.sqrt(-2 * Math.log(1 - random.rand)) * Math.cos(2 * Math::PI * random.rand)

  # Of so many figures at a level that varies so much (as steps do from minute to minute), with three readings a minute
  # and a collection after the second one.
  define_method(:rising_from_level) do |tries, pace, deviation, seed|
    random = Random.new(seed)
    value = ->(minute) { 5_000 + (pace * (minute - 5)) + (deviation / Math.sqrt(2) * gauss(random)) }
    Array.new(tries).count do
      read = ->(minute) { reading.new(minute, { key => value.call(minute) }) }
      verdict = described_class.new({ key => rise }, read.call(5))
      last = (1..18).find do |number|
        verdict.add(read.call(5 + (number / 3.0)))
        verdict.restart_at(read.call(5 + (number / 3.0))) if number == 2
        verdict.decided?
      end
      verdict.rising(read.call(5 + ((last || 18) / 3.0))).any?
    end
  end

  it "takes what rises from a level that varies for growth in nearly all tries, and the level alone in none" do
    expect(rising_from_level(1_000, 1_000, 250, 3)).to be > 980
    expect(rising_from_level(1_000, 1_000, 350, 4)).to be > 920
    expect(rising_from_level(3_000, 0, 350, 5)).to be < 3_000 / 240
  end

  # Of so many figures that go on at that pace, with a quarter of the suspected pace as the noise of each rate.
  define_method(:rising) do |tries, pace, seed|
    random = Random.new(seed)
    Array.new(tries).count do
      value = 5_000.0
      verdict = described_class.new({ key => rise }, reading.new(5, { key => value }))
      minute = 5
      12.times do
        minute += 1
        value += pace + (250 * gauss(random))
        verdict.add(reading.new(minute, { key => value }))
        break if verdict.decided?
      end
      verdict.rising(reading.new(minute + 1, { key => value + pace })).any?
    end
  end

  it "takes what has stopped for growth in less than 1 of 240 tries, and what goes on for growth in nearly all" do
    expect(rising(5_000, 0, 1)).to be < 5_000 / 240
    expect(rising(5_000, 1_000, 2)).to be > 4_800
  end

  it "drops what a collection has freed" do
    verdict = described_class.new({ key => rise }, reading.new(5, { key => 2_000 }))
    expect(verdict.suspects).to be_empty
    expect(verdict).to be_decided
  end
end
