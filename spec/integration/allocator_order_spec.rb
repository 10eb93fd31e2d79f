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

  it "is no matter with MEMINTRO_DISABLE=1: nothing starts, and the error says why" do
    [Subprocess::HOOK, ""].each do |preload|
      code = "p Memintro.tracking?; begin; Memintro.start; rescue Memintro::Error => e; puts e.class, e.message; end"
      result = ruby(code, preload, MEMINTRO_DISABLE: "1").must_succeed
      expect(result.stdout).to match(/\Afalse\nMemintro::DisabledError\n.*MEMINTRO_DISABLE/m)
      expect(result.stderr).to eq ""
    end
  end
end
