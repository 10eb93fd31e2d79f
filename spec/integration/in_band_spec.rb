# frozen_string_literal: true

require "spec_helper"
require "tmpdir"

# Records of blocks within the blocks themselves: docs/design/table.md has the rules.
RSpec.describe "In-band records", :race do
  # Whatever SPEC_RECORDS says.
  let(:in_band) { { "MEMINTRO_RECORDS" => "auto" } }
  let(:table) { { "MEMINTRO_RECORDS" => "table" } }

  def run_native(name, env:, way: :preloaded) = native(program("in_band.c"), name, way: way, env: env)

  before { skip "only on x86-64 and glibc" unless RbConfig::CONFIG["host"].match?(/x86_64.*gnu/) }

  %i[preloaded live].each do |way|
    it "leave all bytes to the program that malloc_usable_size tells it of, and count all (#{way})" do
      figures = run_native("writes_to_all", way: way, env: in_band)
      expect(figures).to include(missed: 0, dropped: 0, short_of: 0, usable_of_40: 56)
      # The block of 40 bytes comes on top.
      expect(figures).to include(bytes: figures[:sizes] + 40, freed: figures[:sizes] + 40, allocations: 14_001,
                                 frees: 14_001)
    end

    it "move to the table during starts and stops: the listed blocks are those of the sums (#{way})" do
      figures = run_native("starts_and_stops", way: way, env: in_band)
      expect(figures).to include(dropped: 0, missed: 0, usable_of_40: 56)
      expect(figures[:unlisted]).to be <= 4
      expect(figures[:blocks]).to be > 10_000
    end

    it "move to the table when a library is loaded that will not find the hook: no block is lost (#{way})" do
      figures = run_native("binds_deeply", way: way, env: in_band)
      expect(figures).to include(missed: 0, dropped: 0, first: 56, then: 40)
      expect(figures[:own_frees]).to eq figures[:own_allocations]
      expect(figures[:frees]).to be_between(figures[:own_frees], figures[:own_frees] + 200)
      expect(figures[:left]).to be_between(0, 30_000)
    end
  end

  it "are the table's where somebody wants that" do
    %i[preloaded live].each do |way|
      expect(run_native("writes_to_all", way: way, env: table)).to include(usable_of_40: 40, dropped: 0, frees: 14_001)
    end
  end

  it "cannot be listed by a process that may no longer read its memory; its sums stay right" do
    figures = run_native("filtered_twice", env: in_band)
    skip figures[:skipped] if figures.key?(:skipped)
    expect(figures).to include(status: -9, seen: 0, frees_meanwhile: 1_000, frees: 1_000, allocations: 2_000)
    # A stop has nothing to move, and says so.
    expect(figures[:dropped]).to be_between(1_000, 1_005)
    expect(figures[:again]).to eq 0
  end

  %i[preloaded live].each do |way|
    it "are read as a file where a filter ends processes that read memory in another way (#{way})" do
      # All blocks, and after the stop those that are left.
      figures = run_native("filtered", way: way, env: in_band)
      skip figures[:skipped] if figures.key?(:skipped)
      expect(figures).to include(status: 0, seen: 3_000, frees_meanwhile: 1_000, dropped: 0, missed: 0, again: 0)
    end

    it "are not given back by a thread that dumps inside the allocator: it would wait for itself (#{way})" do
      Dir.mktmpdir do |folder|
        env = in_band.merge("DUMP" => File.join(folder, "dump"))
        expect(run_native("aborts_in_free", way: way, env: env)).to eq(dumped: true)
      end
    end
  end

  it "are in the table if glibc checks blocks, or another allocator serves" do
    [{ "MALLOC_CHECK_" => "3" }, { "GLIBC_TUNABLES" => "glibc.malloc.check=3" }].each do |env|
      expect(run_native("writes_to_all",
                        env: in_band.merge(env))).to include(usable_of_40: 40, dropped: 0, frees: 14_001)
    end
    jemalloc = NativePrograms.jemalloc or skip "libjemalloc2 is not installed"
    alone = run_native("writes_to_all", env: { "LD_PRELOAD" => "#{Subprocess::HOOK}:#{jemalloc}" })
    behind = run_native("writes_to_all", env: { **in_band, "LD_PRELOAD" => "#{Subprocess::HOOK}:#{jemalloc}" })
    expect(behind).to eq alone
  end

  %i[preloaded live].each do |way|
    it "that are damaged are not believed: after some dozens the table takes over, and sums agree again (#{way})" do
      figures = run_native("escapes", way: way, env: in_band)
      # Of 100,000 blocks, a tenth each is freed, resized and written over in secret. The table knows all but those that
      # are freed in secret, which it notices when their addresses come again.
      with_table = run_native("escapes", way: way, env: table)
      expect(with_table).to include(dropped: 0, usable_of_40: 40)
      expect(figures[:dropped]).to be_between(1, 1_000)
      expect(figures[:usable_of_40]).to eq 40
      expect(figures[:missed]).to be_within(1_000).of(with_table[:missed])
      # Lost blocks are in no sum any more, and the table has no unrecorded ones.
      expect(figures[:frees]).to be_between(with_table[:frees] - 50, with_table[:frees] + 400)
      expect(figures[:freed]).to be_between(with_table[:freed] - 10_000, with_table[:freed] + 90_000)
    end
  end

  it "stay while somebody reads them: blocks that are freed or resized meanwhile are listed, and then counted" do
    figures = run_native("paused", env: in_band)
    expect(figures).to include(seen: 2_000, missed: 0, dropped: 0, allocations: 5_000, frees: 5_000)
    expect(figures[:seen_bytes]).to eq figures[:expected_bytes]
    expect(figures[:freed]).to eq figures[:bytes]
  end

  it "hold back 32 MiB at most: what is freed beyond that is given back at once, and counted exactly" do
    figures = run_native("much_is_freed", env: in_band)
    expect(figures).to include(missed: 0, dropped: 0, frees: 4_000, freed: 4_000 * 30_000, again: 0)
    # 1,118 blocks are 32 MiB. One may have been visited before.
    expect(figures[:seen]).to be_between(1_118, 1_119)
    expect(figures[:given_back]).to be > 2_800 * 30_000
  end

  it "that were looked at leave no page of the map behind" do
    expect(run_native("looked_at", env: in_band)[:grown]).to be < 200_000
  end

  it "move to the table at a stop" do
    expect(run_native("stopped", env: in_band)).to include(seen: 2_000, usable_of_40: 40, missed: 0, dropped: 0)
  end

  it "are forgotten at a clear, and begin again" do
    expect(run_native("cleared",
                      env: in_band)).to include(allocations: 2_001, frees: 2_001, usable_of_40: 56, missed: 0,
                                                dropped: 0)
  end

  it "agree with a program's own figures over a million operations on four threads" do
    verdict = truth(operations: 1_000_000, way: :preloaded, env: in_band)
    expect(verdict).to include(differences: "", wrong_sites: 0, wrong_threads: 0, corrupt: 0, totals_agree: true,
                               missed_frees: 0, dropped: 0)
  end

  it "change nothing that the allocator answers" do
    behaviour = program("behaviour.cc")
    bare = run_command(behaviour).must_succeed.stdout
    expect(run_command(behaviour, way: :preloaded, env: in_band).must_succeed.stdout).to eq bare
  end

  it "are no more exact than the table, which passes the same specs", :long, deadline_seconds: 900 do
    specs = %w[ruby_truth native_truth old_blocks leaks_core leaks_truth native_processes gate_attacks forking_handlers
               objects stacks measure ruby_processes dying threads].map { |name| "spec/integration/#{name}_spec.rb" }
    text = IO.popen({ "SPEC_RECORDS" => "table" }, ["rspec", "--tag", "~long", *specs, { err: %i[child out] }], &:read)
    expect(text).to include(" 0 failures"), text
  end
end
