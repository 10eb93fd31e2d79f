# frozen_string_literal: true

require "spec_helper"

# Forks, vforks and ends of a native program.
RSpec.describe "Processes of a native program under the hook", :race do
  def processes(*arguments, way:, **options) = native(program("processes.c"), *arguments, way: way, **options)

  TruthDriver::WAYS.each do |way|
    it "go on from exact copies after fork and double fork while four threads allocate, #{way}" do
      figures = processes("forks", 100, way: way)
      expect(figures).to include(forks: 100, right: 100, parent_malloc: [100, 0, 50_000, 0],
                                 child_malloc: [0, 0, 0, 0], dropped: 0)
    end

    it "may start, stop and read after a fork during all three, #{way}" do
      expect(processes("forks_amid_starts", 100, way: way)).to include(forks: 100, right: 100)
    end

    it "are forked without a pause while the fork waits for a stream of the program's, #{way}" do
      figures = processes("forks_amid_streams", 1, way: way)
      expect(figures[:status]).to eq 0
      expect(figures[:recorded]).to be_between(1_000, 1_010)
    end

    it "are forked by a signal handler that has interrupted a flush of all streams anywhere, #{way}" do
      skip "only x86-64 has a signal for each instruction" unless RbConfig::CONFIG["host"].start_with?("x86_64")

      figures = processes("forks_at_each_step_of_a_flush", 1, way: way)
      expect(figures[:steps]).to be_between(100, 10_000)
      expect(figures[:forked]).to eq figures[:steps]
    end

    it "share memory with a vfork's child that changes nothing in it, #{way}" do
      figures = processes("vforks", 40, way: way)
      expect(figures).to include(vforks: 40, right: 40, plain_exit: 8, before: 0, parent_malloc: [1, 1, 10, 10])
    end
  end

  # The head of a raw dump: signal, exit status, and totals as [allocations, frees, live bytes].
  def read_dump(path)
    bytes = File.binread(path)
    magic, version, pid, _time, signal, status, sites = bytes.unpack("a8LLQLlQ")
    allocated, freed, allocations, frees = bytes.byteslice(80, 96).unpack("Qx16" * 4)
    { magic: magic, version: version, pid: pid, signal: signal, status: status, sites: sites,
      blocks: allocations - frees, live_bytes: allocated - freed, mode: File.stat(path).mode & 0o777 }
  end

  def leave(how)
    Dir.mktmpdir do |folder|
      path = File.join(folder, "dump")
      result = run_command(program("processes.c"), "leave", how, way: :preloaded, env: { "MEMINTRO_SPEC_DUMP" => path })
      yield result, (read_dump(path) if File.exist?(path)), Dir.children(folder)
    end
  end

  it "leave a dump on request, readable by the owner alone" do
    leave("now") do |result, dump, files|
      expect(result.must_succeed.stdout).to eq "0\n"
      expect(files).to eq ["dump"]
      expect(dump).to include(magic: "MEMINTR\x01".b, version: 17_038, signal: 0, status: -(2**31), mode: 0o600)
      expect(dump[:live_bytes]).to be_between(60_000, 60_000 + 200_000)
    end
  end

  it "leave a dump at _exit, with their own exit status" do
    leave("_exit") do |result, dump, files|
      expect(result.status.exitstatus).to eq 3
      expect(files).to eq ["dump"]
      expect(dump).to include(signal: 0, status: 3, mode: 0o600)
      expect(dump[:blocks]).to be >= 20
    end
  end

  { "abort" => "ABRT", "segv" => "SEGV", "bus" => "BUS", "ill" => "ILL", "fpe" => "FPE" }.each do |how, signal|
    it "leave a dump at #{how} and die of that signal" do
      leave(how) do |result, dump, files|
        expect(result.status.termsig).to eq Signal.list.fetch(signal)
        expect(files).to eq ["dump"]
        expect(dump).to include(signal: Signal.list.fetch(signal), mode: 0o600)
        expect(dump[:blocks]).to be >= 20
      end
    end
  end

  it "keep exit status and signal by every other way out" do
    leave("exit") { |result, *| expect(result.status.exitstatus).to eq 4 }
    leave("return") { |result, *| expect(result.status.exitstatus).to eq 0 }
    leave("exec") { |result, *| expect(result.status.exitstatus).to eq 9 }
    leave("term") { |result, *| expect(result.status.termsig).to eq Signal.list.fetch("TERM") }
  end

  it "that are not Ruby run unharmed when preloaded" do
    [%w[ls -lA /etc/apt], %w[ps -o comm= -p 1], %w[cat /etc/passwd], %w[sed --version], %w[id],
     ["sh", "-c", "echo hello; exit 3"],
     ["sh", "-c", "seq 1000 | sort -n | tail -1; false"],
     ["awk", "BEGIN { for (i = 0; i < 9999; i++) a[i] = i; print length(a) }"]].each do |command|
      bare = run_command(*command)
      %w[0 1].each do |native_children|
        hooked = run_command(*command, way: :preloaded, env: { "MEMINTRO_NATIVE_CHILDREN" => native_children })
        expect([hooked.stdout, hooked.stderr]).to eq [bare.stdout, bare.stderr]
        expect(hooked.status.exitstatus).to eq bare.status.exitstatus
      end
    end
  end

  it "answer calloc and a failing dlsym of a library that is initialised before the hook" do
    early = shared_module("early.c", variant: :lazy)
    hooked = run_command("sh", "-c", "echo fine",
                         env: preloaded_env.merge("LD_PRELOAD" => "#{Subprocess::HOOK}:#{early}"))
    expect([hooked.stdout, hooked.stderr, hooked.status.exitstatus]).to eq ["fine\n", "", 0]
    code = "require 'fiddle'; print Fiddle::Pointer.new(Fiddle::Handle::DEFAULT['early_state'])[0, 4].unpack1('l')"
    ruby = run_ruby(code: code, requires: [], env: preloaded_env.merge("LD_PRELOAD" => "#{Subprocess::HOOK}:#{early}"))
    expect(ruby.must_succeed.stdout).to eq "1"
  end
end
