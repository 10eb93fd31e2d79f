# frozen_string_literal: true

require "spec_helper"

# Records of blocks within the blocks themselves (MEMINTRO_RECORDS=inband): docs/table.md has the rules.
RSpec.describe "Records within blocks" do
  let(:inband) { { "MEMINTRO_RECORDS" => "inband" } }

  def of(name, env:, way: :preloaded) = native(program("in_band.c"), name, way: way, env: env)

  before { skip "only on x86-64 and glibc" unless RbConfig::CONFIG["host"].match?(/x86_64.*gnu/) }

  it "leave all bytes to the program that malloc_usable_size tells it of, and count all" do
    figures = of("writes_to_all", env: inband)
    expect(figures).to include(missed: 0, dropped: 0, short_of: 0, usable_of_41: 48)
    # The block of 41 bytes comes on top.
    expect(figures).to include(bytes: figures[:sizes] + 41, freed: figures[:sizes] + 41, allocations: 14_001,
                               frees: 14_001)
  end

  it "are the table's where they cannot be: by default, and without preloading" do
    [{ "MEMINTRO_RECORDS" => nil }, { "MEMINTRO_RECORDS" => "table" }, { "MEMINTRO_RECORDS" => "auto" }].each do |env|
      expect(of("writes_to_all", env: env)).to include(usable_of_41: 56, dropped: 0)
    end
    expect(of("writes_to_all", env: inband, way: :live)).to include(usable_of_41: 56, dropped: 0)
  end

  it "are the table's where glibc was told to check blocks, or another allocator serves" do
    [{ "MALLOC_CHECK_" => "3" }, { "GLIBC_TUNABLES" => "glibc.malloc.check=3" }].each do |env|
      expect(of("writes_to_all", env: inband.merge(env))).to include(usable_of_41: 56, dropped: 0, frees: 14_001)
    end
    jemalloc = NativePrograms.jemalloc or skip "libjemalloc2 is not installed"
    alone = of("writes_to_all", env: { "LD_PRELOAD" => "#{Subprocess::HOOK}:#{jemalloc}" })
    behind = of("writes_to_all", env: { **inband, "LD_PRELOAD" => "#{Subprocess::HOOK}:#{jemalloc}" })
    expect(behind).to eq alone
  end

  it "that are damaged or stale are counted, and not believed" do
    figures = of("escapes", env: inband)
    # Of 100,000 blocks, a tenth each is freed, resized and written over in secret.
    expect(figures[:frees]).to be_between(70_000, 90_000)
    expect(figures[:missed]).to be_between(1_000, 30_000)
    # Each that was written over, and those of the others that were found.
    expect(figures[:dropped]).to be_between(10_000, 30_000)
    expect(figures[:freed]).to be < figures[:bytes]
  end

  it "stay while somebody reads them: blocks that are freed or resized meanwhile are listed, and then counted" do
    figures = of("paused", env: inband)
    expect(figures).to include(seen: 2_000, missed: 0, dropped: 0, allocations: 5_000, frees: 5_000)
    expect(figures[:seen_bytes]).to eq figures[:expected_bytes]
    expect(figures[:freed]).to eq figures[:bytes]
  end

  it "hold back 32 MiB at most: what is freed beyond that is given back at once, and counted exactly" do
    figures = of("much_is_freed", env: inband)
    expect(figures).to include(missed: 0, dropped: 0, frees: 4_000, freed: 4_000 * 30_000, again: 0)
    # 1,118 blocks are 32 MiB. One may have been visited before.
    expect(figures[:seen]).to be_between(1_118, 1_119)
    expect(figures[:given_back]).to be > 2_800 * 30_000
  end

  it "that were looked at leave no page of the bitmap behind" do
    expect(of("looked_at", env: inband)[:grown]).to be < 200_000
  end

  it "move to the table at a stop" do
    expect(of("stopped", env: inband)).to include(seen: 2_000, usable_of_41: 56, missed: 0, dropped: 0)
  end

  it "are forgotten at a clear, and begin again" do
    expect(of("cleared",
              env: inband)).to include(allocations: 2_001, frees: 2_001, usable_of_41: 48, missed: 0, dropped: 0)
  end

  it "agree with a program's own figures over a million operations on four threads" do
    verdict = truth(operations: 1_000_000, way: :preloaded, env: inband)
    expect(verdict).to include(differences: "", wrong_sites: 0, wrong_threads: 0, corrupt: 0, totals_agree: true,
                               missed_frees: 0, dropped: 0)
  end

  it "change nothing that the allocator answers" do
    behaviour = program("behaviour.cc")
    bare = run_command(behaviour).must_succeed.stdout
    expect(run_command(behaviour, way: :preloaded, env: inband).must_succeed.stdout).to eq bare
  end

  it "pass what is asked of the table", :long, deadline_seconds: 900 do
    specs = %w[ruby_truth native_truth old_blocks leaks_core leaks_truth native_processes gate_attacks forking_handlers
               objects stacks measure ruby_processes dying threads].map { |name| "spec/integration/#{name}_spec.rb" }
    text = IO.popen({ "SPEC_RECORDS" => "inband" }, ["rspec", "--tag", "~long", *specs, { err: %i[child out] }], &:read)
    expect(text).to include(" 0 failures"), text
  end
end
