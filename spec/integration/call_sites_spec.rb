# frozen_string_literal: true

require "spec_helper"

# Which line an allocation is put down to, wherever Ruby code runs.
RSpec.describe "Call sites" do
  def sites(*arguments, way: :live, **options)
    run_ruby("sites.rb", *arguments, way: way, **options).must_succeed.json.fetch(:result)
  end

  TruthDriver::WAYS.each do |way|
    context "when #{way}" do
      it "name the line of each string operation, with its bytes" do
        figures = sites("strings", way: way)
        least = { repeat: 20_001, plus: 40_001, interpolate: 60_001, upcase: 60_001, join: 60_001, format: 40_001 }
        least.each do |name, bytes|
          expect(figures.fetch(name)).to be_between(bytes, bytes + 5000), "#{name}: #{figures}"
        end
      end

      it "name the line that makes an array or a string grow, and keep its live bytes" do
        figures = sites("growth", way: way)
        array, string = figures.fetch(:live)
        expect(array).to be_between(80_000, 240_000)
        expect(string).to be_between(40_001, 120_000)
        expect(figures[:array_growth].first).to be_between(5, 60)
        expect(figures[:string_growth].first).to be_between(5, 60)
      end

      it "are the made-up path and line of an eval", vm: way == :live do
        expect(sites("eval", way: way)).to match [["made/up place.rb:4242", "ruby", 4242, be_between(20_001, 65_000)],
                                                  ["made/up place.rb:4243", "ruby", 4243, be_between(20_001, 65_000)]]
      end

      it "are exact in a Ractor", vm: way == :live do
        expect(sites("ractor",
                     way: way)).to include(sum: 1_000_000,
                                           ractor: [be_between(50, 56), 0,
                                                    be_between(1_000_050, 1_004_000), 0])
      end

      it "are exact in four Ractors that run at once" do
        bytes = (3001 + 3101 + 3201 + 3301) * 1000
        figures = sites("ractors", way: way)
        expect(figures).to include(sizes: [3000, 3100, 3200, 3300], live_texts: 0, live: be_between(0, 20 * 1_728))
        expect(figures[:frees]).to be_between(4000, 4040)
        expect(figures[:freed_bytes]).to be_between(bytes, bytes + 5000)
      end

      it "are exact in fibers, deep ones and one that overflows its stack" do
        figures = sites("fiber", way: way)
        expect(figures).to include(overflow: "overflow")
        expect(figures[:fiber][2]).to be >= 500 * 3210
        expect(figures[:deep][0]).to be_between(301, 306)
        expect(figures[:deep][2]).to be >= 301 * 4321
      end

      it "are the handler's lines in a trap", vm: way == :live do
        figures = sites("trap", way: way)
        expect(figures).to include(handled: 20,
                                   trap: [be_between(20, 26), 0,
                                          be_between(20 * 2468, (20 * 2468) + 2000), 0])
      end

      it "are the finalizer's lines in a finalizer" do
        figures = sites("finalizer", way: way)
        expect(figures[:ran]).to be_between(900, 1000)
        # Other sizes are of what Ruby needs to run finalizers there.
        expect(figures[:sizes][:"1357"]).to eq figures[:ran]
      end

      it "are exact for threads that end and threads that are killed", vm: way == :live do
        figures = sites("dying_threads", way: way)
        expect(figures).to include(freed: 200, missed: 0)
        allocations, frees, total_bytes, freed_bytes = figures[:thread]
        expect(total_bytes - freed_bytes).to be < 20_000
        expect([allocations - frees, frees]).to match [be < 60, be >= 200]
      end

      [[], ["after a collection"]].each do |moment|
        it ["are native callers on threads that Ruby does not know and those without its lock", *moment].join(", ") do
          figures = sites("native", shared_module("native_work.c"), *moment, way: way)
          expect(figures[:names]).to all(match(/\Alibnative_work-lazy\.so\(native_block\+0x[0-9a-f]+\)\z/))
          expect(figures).to include(native: [[110, 60, 133_400, 74_040]], paths: [nil])
          expect(figures[:with_lock]).to match [be_between(30, 40), be_between(10, 20), be_between(120_000, 124_000),
                                                be >= 40_000]
        end
      end

      it "put the collector's own memory down to (gc)" do
        figures = sites("gc", way: way)
        expect(figures[:gc].first).to be_positive
        expect(figures[:gc_start].to_a.first.to_i).to be <= 4
      end

      it "stay right while instruction sequences die and their addresses are used again" do
        expect(sites("cache", 2000, way: way)).to eq(found: 2000, right: 2000, kept: 2000)
      end

      it "stay right under GC.stress", long: way == :preloaded do
        expect(sites("cache", 24, way: way, env: { "SITES_GC_STRESS" => "1" })).to eq(found: 24, right: 24, kept: 24)
      end

      it "beyond max_sites share (other), and the sums stay exact" do
        figures = sites("max_sites", way: way)
        expect(figures[:sites]).to be <= 50
        expect(figures[:other]).to be >= 450
        expect(figures[:sums]).to eq figures[:totals]
      end

      it "know the exact size of a 5 GiB block" do
        expect(sites("giant", way: way))
          .to eq(during: [1, 5 << 30], sizes: [5 << 30], after: [1, 1, 5 << 30, 5 << 30])
      end
    end
  end

  it "keep the bytes of a path that is not UTF-8, and reports stay valid", :vm, :vm_long do
    figures = sites("non_utf8")
    expect(figures).to include(bytes: figures[:expected], lineno: 7, live: be_between(20_001, 65_000), valid: true,
                               parsed: true)
  end

  it "keep a path of 10 kB whole, and inspect it shortly" do
    expect(sites("long_path")).to match(exact: be_between(20_001, 65_000), inspected: be < 300)
  end

  it "put compiling down to the line that loads, evaluates or requires" do
    figures = sites("load", flags: ["--disable-gems"])
    expect(figures).to match(load: be > 500_000, module_eval: be > 500_000, require: be > 500_000)
  end

  it "put what a file's body allocates down to the body's own line" do
    figures = sites("body_of_a_file").fetch(:body)
    expect([figures[0], figures[2]]).to match [be_between(1, 8), be_between(50_001, 53_000)]
  end

  it "put what Ruby allocates before its first line down to (boot)" do
    boot = run_ruby("sites.rb", "boot", way: :preloaded).must_succeed.json
    expect(boot).to match(boot: [be > 1000, be > 100_000], preloaded: true)
  end

  it "have a line of Ruby: where none runs, Ruby's own start included, that is (boot)" do
    code = "puts JSON.generate(Memintro.each_call_site.map { |s| [s.name, s.kind, s.lineno] })"
    result = run_memintro("run", "--report", File::NULL, "--", RbConfig.ruby, "-rjson", "-e", code).must_succeed
    sites = JSON.parse(result.stdout)
    expect(sites.size).to be > 5
    expect(sites.select { |name, kind, line| name.end_with?(":0") || (kind == "ruby" && line < 1) }).to eq([])
  end

  it "are the caller's lines where evaluated code has line 0 or none at all, also for several callers" do
    TruthDriver::WAYS.each do |way|
      figures = sites("line_0", way: way)
      expect(figures[:odd]).to eq([])
      expect(figures[:first]).to match [be_between(100, 110), be_between(2_000_100, 2_010_000)]
      expect(figures[:second]).to match [be_between(50, 60), be_between(1_000_050, 1_010_000)]
    end
  end

  it "leave a Fiber scheduler alone" do
    expect(sites("scheduler")).to eq(before: nil, after: nil, calls: [])
  end

  it "take what their number says, and nothing for objects that are not tracked" do
    taken = [false, true].map do |objects|
      run_ruby(code: <<~RUBY).must_succeed.stdout.to_f
        Memintro.start(objects: #{objects})
        # The same on one line, without objects: where blocks are in the table, that has most of its room then.
        eval(#{objects} ? "1" : "'a' * 700;" * 10_240, binding, "warm.rb")
        before = Memintro.totals.tracker_bytes
        eval("'a' * 700\n" * 10_240, binding, "many.rb")
        puts (Memintro.totals.tracker_bytes - before) / 10_240.0
      RUBY
    end
    expect(taken).to match([be_between(96, 160), be_between(190, 300)])
  end

  it "degrade when the budget of memory is used up, and say so" do
    TruthDriver::WAYS.each do |way|
      figures = sites("budget", way: way)
      expect(figures[:dropped]).to be > 1_000_000
      expect(figures[:tracker_bytes]).to be <= 4 << 20
      # The list of 2,000,000 addresses, and little else.
      expect(figures[:live]).to be_between(16_000_000, 17_000_000)
      expect(figures[:live_blocks]).to be_between(1, 1_000)
      expect(figures[:said]).to match(/1,\d{3},\d{3} allocations could not be followed/)
    end
  end
end
