# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "support/patch_release"

# The gem as one Ruby built and installed it, run by another patch release: what it needs is looked up at run time.
RSpec.describe "A gem built for another patch release" do
  before { need_patch_release }

  let(:version) { run_patched("-e", "print RUBY_VERSION", way: :bare).must_succeed.stdout }
  let(:folder) { File.dirname(patch_release[:program], 3) }

  it "is run by that release, with its own library, extensions and configuration" do
    found = patched_answer(<<~'RUBY')
      native = $LOADED_FEATURES.select { |file| file.start_with?("/") && file.end_with?(".so") }
      mapped = File.read("/proc/self/maps").scan(%r{/\S*/libruby\S*}).uniq
      configuration = RbConfig::CONFIG.values_at("RUBY_PROGRAM_VERSION", "ruby_version")
      puts JSON.generate(version: RUBY_VERSION, configuration: configuration, program: RbConfig.ruby, native: native,
                         mapped: mapped)
    RUBY
    expect(found[:version]).to eq(version)
    expect(version).not_to eq(RUBY_VERSION)
    expect(version[/\A\d+\.\d+/]).to eq(RUBY_VERSION[/\A\d+\.\d+/])
    expect(found[:configuration]).to eq([version, RbConfig::CONFIG["ruby_version"]])
    expect(found[:program]).to eq(patch_release[:program])
    own, others = found[:native].partition { |file| file.start_with?("#{folder}/") }
    expect(own).to include(end_with("/objspace.so"))
    expect(others).to eq([library("memintro.so")])
    expect(found[:mapped]).to match([start_with("#{folder}/").and(end_with(".so.#{version}"))])
  end

  TruthDriver::WAYS.each do |way|
    it "lacks nothing and has no problem, #{way}" do
      found = patched_answer(<<~'RUBY', way: way)
        Memintro.start
        doctor = Memintro.doctor
        puts JSON.generate(problems: doctor[:problems], preloaded: Memintro.preloaded?, tracking: Memintro.tracking?)
      RUBY
      expect(found).to eq(problems: [], preloaded: way == :preloaded, tracking: true)
    end

    it "counts exactly at known lines, #{way}" do
      expect(patched_script("truth.rb", way: way))
        .to eq(malloc: [1000, 1000, 1_024_000, 1_024_000], realloc: [1000, 400, 4_096_000, 1_638_400],
               string: [1000, 250, 5_001_000, 1_250_250], array: [1000, 0, 8_000_000, 0],
               block: [1000, 1000, 333_000, 333_000], missed_frees: 0, preloaded: way == :preloaded)
    end

    it "counts 36,000 random operations of three threads exactly, #{way}" do
      figures = patched_script("truth_random.rb", 20_240_506, 12_000, way: way)
      expect(figures).to include(missed_frees: 0, dropped: 0, preloaded: way == :preloaded)
      expect(figures[:measured]).to eq(figures[:expected])
      expect(figures[:expected].values.sum { |allocations, frees,| allocations + frees }).to be > 36_000
    end
  end

  it "counts the instruction sequences that Ruby counts, and names their lines" do
    found = patched_answer(<<~'RUBY')
      1000.times { |i| eval("def m#{i}(a) = a", nil, "/app/generated.rb", 7) }
      GC.start
      GC.disable
      Memintro.iseqs
      count = Memintro.iseqs.count
      top = Memintro.top_iseqs(nil, by: :location).find { |row| row.name == "/app/generated.rb:7" }
      puts JSON.generate(ruby: ObjectSpace.count_imemo_objects[:imemo_iseq], count: count, each: Memintro.each_iseq.count,
                         top: [top.count, top.bytes], label: Memintro.each_iseq.find { |iseq| iseq.label =~ /m999/ }.path,
                         sums: [Memintro.iseqs.bytes, Memintro.each_iseq.sum(&:bytes)])
    RUBY
    expect(found[:count]).to be > 1500
    expect(found.values_at(:count, :each)).to all(eq(found[:ruby]))
    # Each method's, and those of the evals that are not collected yet.
    expect(found[:top]).to match([be_between(1000, 2000), be > 200_000])
    expect(found[:label]).to eq("/app/generated.rb")
    expect(found[:sums].uniq.size).to eq(1)
  end

  it "counts the objects that Ruby counts, by class and by page" do
    found = patched_answer(read_program("patch_release/objects.rb"))
    expect(found[:ours] - found[:objects]).to be_between(0, 20)
    expect(found[:bytes] - found[:memsize]).to be_between(0, 1000)
    expect(found[:needles]).to eq(20_000)
    expect(found[:live][1] - found[:live][0]).to be_between(0, 100)
    expect(found[:live][0]).to be > 40_000
    expect(found[:pages].uniq.size).to eq(1)
  end

  it "takes whole snapshots, with every field of GC.stat" do
    found = patched_answer(<<~'RUBY')
      Memintro.start
      $kept = Array.new(100) { "x" * 50_000 }
      snapshot = Memintro.snapshot(:all)
      delta = Memintro.gc_delta { GC.start }
      puts JSON.generate(missing: snapshot.missing, gc: snapshot.gc.keys, stat: GC.stat.keys, heaps: snapshot.gc_heaps.keys,
                         pools: GC.stat_heap.keys, version: snapshot.process[:ruby], iseqs: snapshot.iseqs[:count],
                         string: snapshot.classes.find { |row| row.name == "String" }.bytes,
                         site: snapshot.call_sites.find { |site| site.name == "-e:2" }.live_bytes,
                         collections: delta[:count])
    RUBY
    expect(found).to include(missing: {}, version: version, collections: 1)
    expect(found[:gc]).to eq(found[:stat])
    expect(found[:heaps]).to eq(found[:pools])
    expect(found.values_at(:iseqs, :string)).to match([be > 500, be > 5_000_000])
    expect(found[:site]).to be_between(5_000_100, 5_010_000)
  end

  it "has its command start programs, report on them and examine itself" do
    Dir.mktmpdir do |reports|
      code = "require 'fiddle'; $kept = Array.new(100) { Fiddle.malloc(20_001) }; system(RbConfig.ruby, '-e', 'exit 3')"
      result = run_patched_memintro("run", "--format", "json", "--report", File.join(reports, "%p"), "--",
                                    patch_release[:program], "-e", code).must_succeed
      found = Dir.glob("*", base: reports).map { |name| JSON.parse(File.read(File.join(reports, name))) }
      expect([result.stdout, result.stderr]).to eq(["", ""])
      expect(found.map { |report| report["process"].values_at("ruby", "preloaded") }).to eq([[version, true]] * 2)
      lines = found.flat_map { |report| report["call_sites"] }.select { |site| site["name"] == "-e:1" }
      expect(lines.map { |site| site["live_bytes"] }.max).to be_between(2_000_100, 2_010_000)
    end
    doctor = run_patched_memintro("doctor").must_succeed.stdout
    expect(doctor).to include(", ruby #{version},", "start in a running process: works", "memintro run: works")
    expect(doctor).not_to include("Problems:")
  end
end
