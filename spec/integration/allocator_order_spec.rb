# frozen_string_literal: true

require "spec_helper"

# Which library answers malloc first decides what the hook sees.
RSpec.describe "The order of the hook and another allocator" do
  let(:jemalloc) { NativePrograms.jemalloc or skip "libjemalloc2 is not installed" }
  let(:leak) { "b = Array.new(500); 500.times { |i| b[i] = Fiddle.malloc(1000) }" }

  def ruby(code, preload, **env)
    environment = { "LD_PRELOAD" => preload, "MEMINTRO_MODE" => "full" }.merge(env.transform_keys(&:to_s))
    run_ruby(code: code, flags: ["-rfiddle"], env: environment)
  end

  it "is right with the hook first: jemalloc is named and everything is seen" do
    result = ruby("Memintro.start; #{leak}; p Memintro['-e:1'].live_bytes >= 500_000; puts Memintro.doctor.to_s",
                  "#{Subprocess::HOOK}:#{jemalloc}").must_succeed
    expect(result.stdout).to start_with("true\n")
    expect(result.stdout).to include("libjemalloc.so.2")
  end

  it "is wrong with jemalloc first, and start says so" do
    result = ruby("begin; Memintro.stop; Memintro.start; rescue Memintro::Error => e; puts e.class, e.message; end",
                  "#{jemalloc}:#{Subprocess::HOOK}")
    expect(result.stdout).to start_with("Memintro::NotSeenError\n")
    expect(result.stdout).to match(/LD_PRELOAD/)
  end

  describe "is wrong with jemalloc first, where the hook has tracked since the process began:" do
    let(:wrong) { "#{jemalloc}:#{Subprocess::HOOK}" }
    let(:sentence) { %r{\S+/libjemalloc\.so\.2 answers malloc before memintro's hook does.*: put memintro's hook} }

    ["", "mode: :sampled", "max_sites: 1000"].each do |settings|
      it "start(#{settings}) says so in the words of a first start, and tracks no longer" do
        start = "begin; Memintro.start(#{settings}); rescue Memintro::Error => e; p e.class, Memintro.tracking?; " \
                "puts e.message; end"
        said = ["", "Memintro.stop;"].map { |before| ruby("#{before} #{start}", wrong).must_succeed.stdout }
        expect(said.first).to match(/\AMemintro::NotSeenError\nfalse\n#{sentence}/)
        expect(said.last).to eq(said.first)
      end
    end

    it "track says so" do
      code = "begin; Memintro.track { 'x' * 100_000 }; rescue Memintro::Error => e; p e.class; puts e.message; end"
      expect(ruby(code, wrong).must_succeed.stdout).to match(/\AMemintro::NotSeenError\n#{sentence}/)
    end

    it "the report says so, as text and as JSON, also while nothing is tracked" do
      expect(ruby("Memintro.report", wrong).must_succeed.stdout)
        .to match(/\nmemintro sees no allocation in this process:\n#{sentence}/)
      code = "Memintro.untracked { Memintro.report($stdout, format: :json) }"
      report = JSON.parse(ruby(code, wrong).must_succeed.stdout)
      expect(report["process"]).to include("tracking" => true, "problem" => match(sentence))
    end

    it "a process that `memintro run` would report on says so, and runs" do
      result = run_ruby(code: "puts 1", requires: ["memintro/autorun"],
                        env: { "LD_PRELOAD" => wrong, "MEMINTRO_MODE" => "full" }).must_succeed
      expect([result.stdout, result.stderr]).to match ["1\n", /\Amemintro: not tracking process \d+: #{sentence}/]
    end

    it "doctor says so, for any value of LD_PRELOAD" do
      expect(ruby("ENV.delete('LD_PRELOAD'); puts Memintro.doctor.problems", wrong).must_succeed.stdout)
        .to match(/\A#{sentence}.*\n\z/)
    end
  end

  it "is asked for without a trace in the figures" do
    code = "p %i[mode mode unseen].map { |name| Memintro::Native.method(name) }.map { |asked| " \
           "a = Memintro.thread_totals.allocations; asked.call; Memintro.thread_totals.allocations - a }.last"
    expect(ruby(code, "#{Subprocess::HOOK}:#{jemalloc}").must_succeed.stdout).to eq("0\n")
  end

  it "is wrong with jemalloc first, and doctor says so" do
    result = ruby("puts Memintro.doctor.to_s", "#{jemalloc}:#{Subprocess::HOOK}")
    expect(result.must_succeed.stdout).to match(/^Problems:\n.*libjemalloc\.so\.2 before memintro's hook/)
  end

  it "does not matter for a live start: jemalloc's functions are the real ones" do
    code = "Memintro.start; #{leak}; p Memintro['-e:1'].live_bytes >= 500_000; puts Memintro.doctor.to_s"
    result = ruby(code, jemalloc)
    expect(result.must_succeed.stdout).to start_with("true\n")
    expect(result.stdout).to include("libjemalloc.so.2")
  end

  it "is no matter with MEMINTRO_DISABLE=1: nothing starts, and a line says why" do
    [Subprocess::HOOK, ""].each do |preload|
      code = "p Memintro.tracking?, Memintro.start, Memintro.tracking?"
      result = ruby(code, preload, MEMINTRO_DISABLE: "1").must_succeed
      expect(result.stdout).to eq("false\n" * 3)
      expect(result.stderr).to match(/\Amemintro: MEMINTRO_DISABLE=1 is set.*\n\z/)
    end
  end
end
