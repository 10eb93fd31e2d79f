# frozen_string_literal: true

require_relative "../spec_helper"

# `Memintro.start(objects: :sampled)`: estimates of Ruby objects by the line that made them.
RSpec.describe "sampled objects by line" do
  def objects(code, **options) = run_ruby(code: code, requires: %w[memintro json], **options).must_succeed.json

  # In each round a line makes objects, some of which are dropped and collected, and others take their slots. The answer
  # is how often the truth was in the interval.
  HELD = Subprocess.read_program("sampled_objects/held.rb")

  def held(rounds, mean, count, **options)
    objects(HELD.sub("ARGV_OF_SPEC", [rounds, mean, count].inspect), **options)
  end

  it "has the truth in the interval in 95 of 100 runs, after deaths and with slots that others use again" do
    # With a probability of 0.95 each, 180 to 198 of 200 runs are right in 999 of 1,000 cases.
    expect(held(200, 40, 8_000).values).to all(be_between(180, 199))
  end

  it "has the truth in the interval in 93 to 97 of 100 runs, whether few or many objects were drawn",
     :long, deadline_seconds: 5_400 do
    [[2_000, 40, 1_600], [2_000, 40, 4_000], [1_000, 40, 16_000]].each do |rounds, mean, count|
      shares = held(rounds, mean, count, deadline_seconds: 1_800).transform_values { |times| times / rounds.to_f }
      expect(shares.values).to all(be_between(0.93, 0.975)), "#{rounds} runs of #{count / mean} draws: #{shares}"
    end
  end

  # A program that leaks; the line of the leak is marked.
  LEAKS_SAMPLED = {
    "hashes in an array" => ["KEEP = []\n200_000.times { |i| KEEP << { a: i } } # leak", "Hash", 200_000],
    "a growing cache of strings" =>
      ["CACHE = {}\n200_000.times do |i|\n  CACHE[i] = i.to_s # leak\nend", "String", 200_000],
    "objects held by a closure" =>
      ["class Message; end\nHOLD = [Array.new(100_000) { Message.new }].map { |all| -> { all } } # leak", "Message",
       100_000]
  }.freeze

  LEAKS_SAMPLED.each do |name, (code, type, count)|
    it "names the line of #{name} first of all lines, with an estimate and its error" do
      line = code.lines.index { |text| text.include?("# leak") } + 1
      answer = objects(<<~RUBY)
        Memintro.start(objects: :sampled)
        eval(#{code.inspect}, TOPLEVEL_BINDING, "leak.rb", 1)
        GC.start
        first = Memintro.top(1, by: :object_bytes).first
        retained = Memintro.top(5).find { |each| each.kind == :ruby }
        puts JSON.generate(first: first.name, retained: retained.name, of: first.classes[#{type.inspect}],
                           estimated: first.estimated?, live: first.live_objects, text: first.shown(:live_objects, &:to_s),
                           error: first.live_objects_standard_error, interval: first.interval(:live_objects))
      RUBY
      expect(answer).to include(first: "leak.rb:#{line}", retained: "leak.rb:#{line}", estimated: true)
      # Five errors: once in some million runs it is beyond.
      expect((answer[:live] - count).abs).to be < 5 * answer[:error]
      expect(answer[:error]).to be_between(count * 0.02, count * 0.12)
      expect(answer[:text]).to eq("~#{answer[:live]} ±#{answer[:error].ceil}")
      expect(answer[:of].size).to eq(4)
      expect((answer[:of][0] - count).abs).to be < 5 * answer[:of][2]
    end
  end

  it "forgets what is freed, follows what moves, and starts anew in each forked child" do
    answer = objects(read_program("sampled_objects/freed_and_moved.rb"))
    [[20_000, 0], [8_000, 1]].each do |truth, at|
      expect((answer[:moved][at][0] - truth).abs).to be < 5 * answer[:moved][at][2]
    end
    # The stack may hold a few.
    expect(answer.values_at(:child, :gone)).to all(be < 100)
    expect(answer[:kept]).to be_between(17_000, 23_000)
  end

  it "does not count objects from before the start, and has no event for freed ones" do
    answer = objects(<<~'RUBY')
      before = Array.new(50_000) { Object.new }
      line = __LINE__ - 1
      Memintro.start(objects: :sampled)
      before = nil
      GC.start
      site = Memintro["-e:#{line}"]
      puts JSON.generate(live: site&.live_objects.to_i, made: site&.object_allocations.to_i,
                         sampled: Memintro::Native.tracked_objects.size)
    RUBY
    expect(answer).to include(live: 0, made: 0)
    expect(answer[:sampled]).to be < 50
  end

  it "survives GC.stress, and Ractors that collect" do
    answer = objects(read_program("sampled_objects/stress_and_ractors.rb"))
    expect(answer[:stressed]).to be_between(20, 140)
    expect(answer[:done]).to eq("done").or be(true)
  end

  it "is marked in reports, their files, snapshots, diffs and answers of a socket" do
    answer = objects(read_program("sampled_objects/reports.rb"))
    here = answer[:here]
    expect(answer[:back]).to eq(here)
    expect(answer.values_at(:asked, :aged)).to all(eq(here[1]))
    # One in twenty intervals does not hold the truth.
    expect(here[1][0]).to be < 120_000
    expect(here[1][1]).to be > 80_000
    expect(answer[:diff].first(2)).to eq(["-e:#{answer[:line]}", true])
    expect(answer[:diff].last).to be_within(1).of(answer[:error])
    # malloc's figures are exact.
    expect(answer[:live]).to match(/\A\d+\z/)
    expect(answer[:text]).to match(/\A *~[\d.]+ MiB ±.* ~[\d,]+ ±[\d,]+ +~[\d.]+ MiB ±/)
    expect(answer[:note]).to eq("Figures with ~")
  end

  it "is switched on from outside, and beside sampled blocks" do
    code = "KEPT = Array.new(100_000) { Object.new }"
    [[%w[--objects=sampled], {}], [[], { "MEMINTRO_OBJECTS" => "sampled" }],
     [%w[--objects=sampled --mode sampled], {}]].each do |flags, env|
      result = run_memintro("run", *flags, "--top", "50", "--", RbConfig.ruby, "-e", code, env: env)
      expect(result.stderr).to match(/by retained_bytes:.*~\d[\d,]+ ±\d[\d,]+ .* -e:1$/m)
    end
  end
end
