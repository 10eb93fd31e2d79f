# frozen_string_literal: true

require "spec_helper"

# Whatever the allocator answers in a corner case, the program gets that answer, errno included.
RSpec.describe "The allocator's behaviour under the hook" do
  let(:program_path) { program("behaviour.cc") }
  let(:bare) { run_command(program_path).must_succeed.stdout }

  it "is the same to the letter when preloaded" do
    expect(run_command(program_path, way: :preloaded).must_succeed.stdout).to eq bare
  end

  it "is the same to the letter when preloaded and idle" do
    idle = run_command(program_path, env: preloaded_env(mode: "off")).must_succeed
    expect(idle.stdout).to eq bare
  end

  it "is the same to the letter when started live" do
    expect(run_command(program_path, env: { "MEMINTRO_LIVE" => "1" }).must_succeed.stdout).to eq bare
  end

  it "is the same to the letter when disabled" do
    disabled = run_command(program_path, env: preloaded_env.merge("MEMINTRO_DISABLE" => "1")).must_succeed
    expect(disabled.stdout).to eq bare
  end

  it "is jemalloc's own when jemalloc stands behind the hook" do
    jemalloc = NativePrograms.jemalloc or skip "libjemalloc2 is not installed"
    env = { "BEHAVIOUR_WITHOUT_PVALLOC" => "1", "MEMINTRO_MODE" => "full" }
    alone = run_command(program_path, env: env.merge("LD_PRELOAD" => jemalloc)).must_succeed
    hooked = run_command(program_path, env: env.merge("LD_PRELOAD" => "#{Subprocess::HOOK}:#{jemalloc}")).must_succeed
    expect(hooked.stdout).to eq alone.stdout
  end

  it "covers what it says" do
    expect(bare).to include(
      "realloc(p, 0): null, errno 77", "calloc overflow: null, errno 12", "free(NULL): 0, errno 99",
      "posix_memalign 3: 22, untouched", "new with a handler: bad_alloc (std::bad_alloc) errno 12",
      "handler called 3 times", "aligned nothrow new[]: no exception, null",
      "errno kept by nothrow deletes: 0, errno 99"
    )
  end
end
