# frozen_string_literal: true

require_relative "../spec_helper"
require "tmpdir"

# mwrap's interface over the real hook; specs of its arguments and errors are in spec/unit.
RSpec.describe "mwrap's interface" do
  let(:leak) { %r{^\S*mwrap_leak\.rb:(\d+) growth: (\d+) allocs/frees \((\d+)/(\d+)\)$} }
  # Ruby's own allocations for the call; its caches are larger from 3.2 on.
  let(:most_allocations) { RUBY_VERSION < "3.2" ? 100_003 : 100_009 }

  it "runs a program written for mwrap, which finds its leak" do
    result = run_memintro("run", "--compat", "mwrap", "--", RbConfig.ruby,
                          File.join(Subprocess::ROOT, "examples/mwrap_leak.rb"))
    line, growth, allocations, frees = result.must_succeed.stdout.match(leak).captures.map(&:to_i)
    expect(File.readlines(File.join(Subprocess::ROOT, "examples/mwrap_leak.rb"))[line - 1]).to include("Fiddle.malloc")
    expect(allocations).to be_between(100_000, most_allocations)
    expect(frees).to eq(50_000)
    expect(growth).to be_within((most_allocations - 100_000) * 1024).of(51_200_000)
    expect(result.stderr).to eq("")
  end

  it "is not there without being asked for" do
    result = run_memintro("run", "--", RbConfig.ruby, "-e", "require 'mwrap'")
    expect(result.success?).to be(false)
    expect(result.stderr).to match(/cannot load such file -- mwrap/)
  end

  it "wins over a gem of that name in front of the load path" do
    Dir.mktmpdir do |folder|
      File.write(File.join(folder, "mwrap.rb"), "abort 'the other one'")
      run_memintro("run", "--compat", "mwrap", "--", RbConfig.ruby, "-I#{folder}", "-e",
                   "require 'mwrap'; Mwrap.total_bytes_allocated > 0 or abort 'nothing'").must_succeed
    end
  end

  it "follows a location's blocks, and only while they are not quiet" do
    result = run_ruby(requires: ["memintro/mwrap", "fiddle", "json"], code: <<~'RUBY').must_succeed.json
      Memintro.start
      Mwrap.clear
      work = -> { Fiddle.malloc(30_001) }; kept = Array.new(3); 3.times { |i| kept[i] = work.call }
      Mwrap.quiet { kept << work.call }
      Fiddle.free(kept.shift)
      location = Mwrap["-e:3"]
      sizes = location.each.to_a.map(&:first).select { |size| size == 30_001 }
      generations = location.each.to_a.map(&:last)
      puts JSON.generate(name: location.name, sizes: sizes, frees: location.frees, total: location.total,
                         generations: generations.minmax, now: GC.count, listed: Mwrap.each(90_000).map(&:first))
    RUBY
    expect(result).to include(name: "-e:3", sizes: [30_001, 30_001], listed: ["-e:3"],
                              total: be_between(90_003, 91_000))
    expect(result[:frees]).to be >= 1
    expect(result[:generations]).to all(be_between(1, result[:now]))
  end

  it "leaves growth right where a mark comes after a reset, with live bytes below zero" do
    result = run_ruby(requires: ["memintro/mwrap", "fiddle", "json"], code: <<~'RUBY').must_succeed.json
      Memintro.start
      block = Fiddle.malloc(70_001)
      Mwrap.reset
      Fiddle.free(block)
      Memintro.mark
      site = Memintro["-e:2"]
      last = Memintro.top(nil, by: :growth).last.growth
      puts JSON.generate(live: site.live_bytes, growth: site.growth, last: last)
    RUBY
    expect(result).to include(live: be_between(-71_000, -70_001), growth: 0, last: be > -100_000)
  end

  it "counts from zero after reset, and forgets after clear" do
    result = run_ruby(requires: ["memintro/mwrap", "fiddle", "json"], code: <<~'RUBY').must_succeed.json
      Memintro.start
      kept = Fiddle.malloc(40_001)
      Mwrap.reset
      after_reset = [Mwrap.total_bytes_allocated < 40_000, Mwrap.total_bytes_freed]
      Fiddle.free(kept)
      freed = Mwrap.total_bytes_freed
      kept = Fiddle.malloc(40_001)
      Mwrap.clear
      before = Mwrap.total_bytes_freed
      Fiddle.free(kept)
      puts JSON.generate(after_reset: after_reset[0], freed: freed, forgotten: Mwrap.total_bytes_freed - before)
    RUBY
    expect(result).to include(after_reset: true, freed: be_between(40_001, 45_000), forgotten: be < 40_001)
  end

  describe "the MWRAP variable" do
    around { |example| Dir.mktmpdir { |folder| @folder = folder and example.run } }

    let(:log) { File.join(@folder, "log") }

    def dumped(options, **more)
      code = "require 'fiddle'; Memintro.start; $kept = Fiddle.malloc(50_001)"
      run_ruby(code: code, requires: ["memintro/mwrap"], env: { "MWRAP" => options }, **more).must_succeed
    end

    it "appends what is above the minimum to a path at exit" do
      File.write(log, "before\n")
      dumped("dump_path:#{log},dump_min:50000")
      expect(File.read(log)).to match(/\Abefore\n +5\d{4} +\d+ -e:1\n\z/)
    end

    it "dumps to a descriptor, and to the path where both are given" do
      dumped("dump_fd:2,dump_path:#{log},dump_min:50000")
      expect(File.read(log).lines.size).to eq(1)
      expect(dumped("dump_fd:2,dump_min:50000").stderr).to match(/\A +5\d{4} +\d+ -e:1\n\z/)
    end

    it "says on standard error what is wrong with it, and the program goes on" do
      expect(dumped("dump_fd:many").stderr).to start_with("memintro: MWRAP=dump_fd:many: ")
    end
  end
end
