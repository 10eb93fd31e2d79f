# frozen_string_literal: true

require_relative "../spec_helper"

# What is loaded when it is first used, first used in a Ractor.
RSpec.describe "Memintro in a Ractor" do
  def answers(code, requires: ["memintro"])
    helpers = <<~'RUBY'
      def asked = yield.to_s rescue "#{$!.class}: #{$!.message}"
      def answer_of(ractor) = ractor.respond_to?(:value) ? ractor.value : ractor.take
    RUBY
    run_ruby(code: helpers + code, requires: requires, flags: ["-W0"], deadline_seconds: 60).must_succeed.stdout.lines
  end

  around do |example|
    Dir.mktmpdir do |folder|
      @file = File.join(folder, "s.json")
      run_ruby(nil, @file, code: "Memintro.snapshot(:all).save(ARGV.first)").must_succeed
      example.run
    end
  end

  it "says what to do for what is not loaded" do
    lines = answers(<<~RUBY)
      puts answer_of(Ractor.new {
        [asked { Memintro::Sampler.new }, asked { Memintro::Trend.new([]) }, asked { Memintro::Snapshot.load("s.json") },
         asked { Memintro::Snapshot::Parts }]
      })
    RUBY
    expect(lines).to match([/\AMemintro::UnsupportedError: a sampler can be made in the main Ractor only/,
                            %r{\AMemintro::UnsupportedError: Memintro::Trend .*, write require "memintro/trend" before},
                            *[%r{\AMemintro::UnsupportedError: .*, write require "memintro/snapshot" before}] * 2])
  end

  it "answers what the collector did, how near the container's limit is, and what GetProcessMem is asked" do
    lines = answers(<<~RUBY, requires: %w[memintro memintro/get_process_mem])
      main = [Memintro.cgroup&.path.inspect, GetProcessMem.new.mb, Memintro.gc_delta {}]
      delta, cgroup, mem, nested = answer_of(Ractor.new {
        3.times { Memintro.gc_delta { 1_000.times { Object.new } } }
        [asked { Memintro.gc_delta { 1_000.times { Object.new } }.objects_allocated }, asked { Memintro.cgroup&.path.inspect },
         asked { [GetProcessMem.new.mb, GetProcessMem.new(Process.pid).bytes / (1 << 20)].map(&:to_f).join(" ") },
         asked { Memintro.gc_delta { Memintro.gc_delta { GC.start } }.major_gc_count }]
      })
      puts delta, cgroup == main[0], mem.split.all? { |mb| (Float(mb) - main[1]).abs < 16 }, nested
    RUBY
    # The count is of all Ractors, and the main one makes an object or two while it waits.
    expect(Integer(lines[0], 10)).to be_between(1_000, 1_200)
    expect(lines[1, 2]).to eq(%W[true\n true\n])
    expect(Integer(lines[3], 10)).to be >= 1
  end

  # Ruby 3.3 refuses what 3.1 and 3.4 do.
  it "loads what gc_delta and cgroup need, or says that the main Ractor has to" do
    lines = answers(<<~RUBY)
      def both = [asked { Memintro.gc_delta {}.class }, asked { Memintro.cgroup && true }]
      puts answer_of(Ractor.new { both }), both, answer_of(Ractor.new { both })
    RUBY
    first, here, after = lines.map(&:chomp).each_slice(2).to_a
    refusal = /\AMemintro::UnsupportedError: Memintro::\w+.* cannot load it in a Ractor; call this method once in the/
    expect(first[0]).to eq("Memintro::GcDelta").or match(refusal)
    expect(first[1]).to eq(here[1]).or match(refusal)
    expect(here).to match(["Memintro::GcDelta", "true"]).or eq(["Memintro::GcDelta", ""])
    expect(after).to eq(here)
  end

  it "reads and compares snapshots when that was done" do
    lines = answers(<<~RUBY, requires: %w[memintro memintro/trend json])
      puts answer_of(Ractor.new(#{@file.inspect}) { |file|
        loaded = Memintro::Snapshot.load(file)
        [asked { loaded.pid.positive? }, asked { loaded.inspect.size > 300 }, asked { (loaded - loaded).to_html.size > 1_000 },
         asked { (loaded - loaded).classes.size }, asked { Memintro::Trend.new([loaded] * 3).growing.size }]
      })
    RUBY
    expect(lines.map(&:chomp)).to eq(%w[true true true 0 0])
    lines = answers(<<~RUBY, requires: %w[memintro memintro/snapshot])
      abort "JSON is loaded" if defined?(JSON)
      puts answer_of(Ractor.new(#{@file.inspect}) { |file| asked { Memintro::Snapshot.load(file) } })
    RUBY
    expect(lines.join).to start_with("Memintro::UnsupportedError: Ruby's JSON is not loaded, and a Ractor")
  end
end
