# frozen_string_literal: true

require_relative "../spec_helper"
require "tmpdir"

# What `memintro run` leaves out of a process until the program names Memintro.
RSpec.describe "the rest of memintro in a process of memintro run" do
  def run(code, *flags)
    run_memintro("run", *flags, "--", RbConfig.ruby, "-w", "-e", code).must_succeed
  end

  loaded = "$LOADED_FEATURES.grep(%r{/memintro/runtime/loader}).size"

  it "comes with the first method, constant or question for a method, and is not tracked" do
    ["Memintro.mode", "Memintro::Snapshot", "defined?(Memintro.start)", "Memintro.respond_to?(:mark)",
     "require(%q(memintro/rack))"].each do |first|
      figures = run("a = #{loaded}; require %q(memintro); b = #{loaded}; [#{first}].first; " \
                    "p [a, b, #{loaded}, Memintro.mode, Memintro.tracking?]")
      expect(figures.stdout).to eq("[0, 0, 1, :full, true]\n"), first
      expect(figures.stderr).not_to match(%r{memintro/(?:runtime/loader|process/figures)|warn}), figures.stderr
    end
  end

  it "stays out where Ruby itself asks, and names what there is not as ever" do
    asked = run("[[Memintro]].flatten; puts Memintro; p #{loaded}")
    expect(asked.stdout).to eq("Memintro\n0\n")
    missing = run("begin; Memintro.nothing; rescue NoMethodError => e; p e.name; end; " \
                  "begin; Memintro::Nothing; rescue NameError => e; p e.name; end")
    expect(missing.stdout).to eq(":nothing\n:Nothing\n")
  end

  it "comes in a signal handler and from several threads at once" do
    code = "trap(:USR1) { $mode = Memintro.mode }; Process.kill(:USR1, $$); sleep(0.01) until $mode; p $mode"
    expect(run(code).stdout).to eq(":full\n")
    code = "p Array.new(8) { Thread.new { Memintro.totals.allocations.positive? } }.map(&:value).uniq"
    expect(run(code).stdout).to eq("[true]\n")
  end

  it "leaves settings and the report to what the variables said at the start, or the program configures" do
    result = run("ENV[%q(MEMINTRO_REPORT)] = %q(/nowhere/r); Memintro.configure { |c| c.top = 1 }; " \
                 "p Memintro.configuration.report")
    expect(result.stdout).to eq("nil\n")
    expect(result.stderr).to match(/^memintro .*full mode, preloaded/).and match(/more call sites/)
  end

  # The Array of a call's arguments would be an object of the line that calls.
  it "makes no object in the line that calls first, where objects are tracked, and its report comes without it" do
    code = "KEPT = Array.new(1_000) { Object.new }\nMemintro.mark\n" \
           "puts Memintro[%q(-e:2)]&.classes.to_h.keys.grep_v(/imemo/).inspect, Memintro[%q(-e:1)].live_objects"
    expect(run(code, "--objects").stdout).to match(/\A\[\]\n10\d\d\n\z/)
    quiet = run("KEPT = Array.new(1_000) { Object.new }; puts #{loaded}", "--objects", "--stack-depth", "8")
    expect(quiet.stdout).to eq("0\n")
    expect(quiet.stderr).to match(/by retained_bytes:.* 1,0\d\d .* -e:1$/m).and include("Their heaviest callers:")
  end

  it "is the hook's own also for a program that requires a copy" do
    Dir.mktmpdir do |folder|
      FileUtils.cp_r(File.join(Subprocess::LIB, "."), folder)
      result = run("require %q(#{folder}/memintro); p Memintro::Paths::LIB == %q(#{Subprocess::LIB})")
      expect(result.stdout).to eq("true\n")
    end
  end

  it "is refused in a Ractor with a sentence that says what to do" do
    code = "Warning[:experimental] = false; " \
           "p Ractor.new { begin; Memintro.rss; rescue Ractor::UnsafeError => e; e.message; end }.take"
    expect(run(code).stdout).to include("in the main Ractor, write require")
  end
end
