# frozen_string_literal: true

require_relative "../spec_helper"
require "memintro"
require "stringio"

RSpec.describe "Memintro" do
  include_context "with a fake native"

  describe ".start" do
    it "loads the hook and passes its settings on, 0 for those that were not given" do
      expect(Memintro.start).to be(true)
      expect(Memintro.start(mode: "full", max_sites: 10, max_tracker_bytes: 1 << 22)).to be(true)
      expect(native.calls)
        .to eq([:load_hook, [:start, 1, { stack_depth: 1 }], :load_hook,
                [:start, 1, { stack_depth: 1, max_sites: 10, max_tracker_bytes: 1 << 22 }]])
      expect { Memintro.start(max_site: 10) }
        .to raise_error(ArgumentError, /\Aunknown keyword: :max_site; start takes mode, .*max_tracker_bytes\z/)
    end

    it "passes the mean distance on in sampled mode only" do
      Memintro.start(mode: :sampled, sample_bytes: 1000)
      Memintro.configure { |c| c.sample_bytes = 2000 }
      Memintro.start(mode: :sampled)
      Memintro.start
      expect(native.calls.grep(Array))
        .to eq([[:start, 2, { sample_bytes: 1000, stack_depth: 1 }],
                [:start, 2, { sample_bytes: 2000, stack_depth: 1 }], [:start, 1, { stack_depth: 1 }]])
      expect { Memintro.start(sample_bytes: 1000) }
        .to raise_error(ArgumentError, "sample_bytes is 1000, but mode is :full; it is for mode: :sampled")
      expect { Memintro.start(mode: :sampled, sample_bytes: 0) }
        .to raise_error(ArgumentError, "sample_bytes is 0; it must be an Integer from 1 to 1073741824, or nil")
    end

    it "refuses to stop after no time, or what is no time" do
      [[0, ArgumentError], [-1, ArgumentError], [Float::INFINITY, ArgumentError],
       ["1", TypeError]].each do |wrong, error|
        expect { Memintro.start(stop_after: wrong) }
          .to raise_error(error, "stop_after is #{wrong.inspect}; it must be a number of seconds above 0, or nil")
      end
      expect(native.calls).to eq([])
    end

    it "keeps the epoch where it only switches: the call sites are the same" do
      native.start_answer = :switched
      expect { Memintro.start(mode: :sampled) }.not_to change(Memintro, :epoch)
    end

    it "takes what was configured" do
      Memintro.configure { |c| c.max_sites = 5 }
      Memintro.start
      expect(native.calls.last).to eq([:start, 1, { stack_depth: 1, max_sites: 5 }])
    end

    it "is not tracked itself, and leaves the depth of untracked as it was, also after an error" do
      depth = nil
      allow(native).to receive(:start) { (depth = native.depth) && :ok }
      Memintro.untracked { Memintro.untracked { Memintro.start } && expect(native.depth).to(eq(1)) }
      expect(depth).to eq(3)
      allow(native).to receive(:start).and_raise(Memintro::BusyError)
      expect { Memintro.start }.to raise_error(Memintro::BusyError)
      expect(native.depth).to eq(0)
    end

    it "begins a new epoch only where tracking began anew" do
      expect { Memintro.start }.to change(Memintro, :epoch).by(1)
      native.start_answer = :unchanged
      expect { Memintro.start }.not_to change(Memintro, :epoch)
    end

    it "says what is allowed instead of a wrong setting" do
      expect { Memintro.start(mode: :half) }
        .to raise_error(ArgumentError, "mode is :half; it must be one of :full, :sampled")
      expect { Memintro.start(mode: 1) }.to raise_error(TypeError, "mode is 1; it must be one of :full, :sampled")
      expect { Memintro.start(max_sites: 0) }
        .to raise_error(ArgumentError, "max_sites is 0; it must be an Integer from 1 to 16777216, or nil")
      expect { Memintro.start(max_tracker_bytes: "1M") }
        .to raise_error(TypeError, /\Amax_tracker_bytes is "1M"; it must be an Integer from 4194304/)
      expect { Memintro.start(max_bytes: 1) }.to raise_error(ArgumentError, /max_bytes/)
      expect(native.calls).to eq([])
    end
  end

  it ".stop gives the final totals, also where nothing was tracked" do
    2.times { expect(Memintro.stop).to eq(Memintro::Totals.new(*FakeNative::TOTALS.first(7))) }
    expect(Memintro.tracking?).to be(false)
    expect(Memintro.mode).to eq(:off)
  end

  describe ".track" do
    it "starts, runs the block, stops, and gives the totals" do
      native.tracking = false
      seen = nil
      totals = Memintro.track(max_sites: 3) { seen = Memintro.tracking? }
      expect([seen, Memintro.tracking?, totals.allocations]).to eq([true, false, 100_017])
      expect(native.calls).to eq([:load_hook, [:start, 1, { stack_depth: 1, max_sites: 3 }], :stop])
    end

    it "stops when the block raises" do
      native.tracking = false
      expect { Memintro.track { raise "oops" } }.to raise_error("oops")
      expect(native.calls.last).to eq(:stop)
    end

    it "leaves a tracking that is on as it is and gives what the block added" do
      totals = Memintro.track { native.figures = native.figures.dup.tap { |f| f[0] += 64 and f[2] += 1 } }
      expect([totals.allocated_bytes, totals.allocations, totals.frees]).to eq([64, 1, 0])
      expect(native.calls).to eq([])
    end

    it "refuses settings for a tracking that is on already, and no block" do
      expect { Memintro.track(max_sites: 3) {} }.to raise_error(ArgumentError, /on already.*leave out max_sites/)
      expect { Memintro.track }.to raise_error(ArgumentError, /track needs a block/)
    end
  end

  it ".untracked gives the block's value, nests, and ends when the block raises" do
    expect(Memintro.untracked { Memintro.untracked { native.depth } }).to eq(2)
    expect { Memintro.untracked { raise "oops" } }.to raise_error("oops")
    expect(native.depth).to eq(0)
  end

  it ".mark and .clear reach the tracker" do
    expect([Memintro.mark, Memintro.clear]).to eq([nil, nil])
    expect(native.calls).to eq(%i[mark clear])
  end

  it ".thread_totals are the current thread's" do
    expect(Memintro.thread_totals).to eq(Memintro::ThreadTotals.new(*FakeNative::TOTALS.first(4)))
  end

  describe ".each_call_site" do
    it "visits every site in the tracker's order, outside the untracked part" do
      depths = []
      names = []
      expect(Memintro.each_call_site { |site| names << site.name and depths << native.depth }).to be_nil
      expect(names).to eq(["(gc)", "/app/leak.rb:12", "libz.so.1(deflateInit2_+0x9c)",
                           "/usr/lib/ruby/3.1.0/json/common.rb:216"])
      expect(depths.uniq).to eq([0])
    end

    it "leaves out what has less live bytes, and is an enumerator without a block" do
      expect(Memintro.each_call_site(min_live_bytes: 4000).map(&:lineno)).to eq([12, nil])
      expect(Memintro.each_call_site(min_live_bytes: 4001).map(&:lineno)).to eq([12])
      expect { Memintro.each_call_site(min_live_bytes: -1) }
        .to raise_error(ArgumentError, "min_live_bytes is -1; it must be an Integer from 0")
    end

    it "does not care how many there are" do
      native.rows = Array.new(1000) { |i| [i + 3, :ruby, "a.rb", i, 1, 0, 8, 0, 0, 0, 0] }
      expect(Memintro.each_call_site.map(&:lineno)).to eq((0...1000).to_a)
    end
  end

  describe ".top" do
    it "sorts by the figure asked for, the greatest first" do
      expect(Memintro.top(2).map(&:live_bytes)).to eq([51_200_000, 4000])
      expect(Memintro.top(nil, by: :growth).map(&:growth)).to eq([50_000_000, 0, 0, -500])
      expect(Memintro.top(1, by: "mean_lifespan").map(&:name)).to eq(["(gc)"])
      expect(Memintro.top(0)).to eq([])
    end

    it "agrees with sorting the sites themselves, for every figure" do
      random = Random.new(7)
      native.rows = Array.new(300) { |i| [i, :ruby, "a.rb", i, *Array.new(7) { random.rand(20) }] }
      Memintro::CallSite::FIGURES.each do |figure|
        slow = Memintro.each_call_site.sort_by { |site| [-site[figure], site.lineno] }.first(17)
        expect(Memintro.top(17, by: figure)).to eq(slow), figure.to_s
      end
    end

    it "counts only old blocks, and leaves out sites without any" do
      native.aged = { 3 => [2048, 2], 4 => [4000, 8] }
      top = Memintro.top(older_than_gcs: 3)
      expect(top.map { |site| [site.name, site.live_bytes, site.live_blocks] })
        .to eq([["libz.so.1(deflateInit2_+0x9c)", 4000, 8], ["/app/leak.rb:12", 2048, 2]])
      expect(native.calls).to eq([[:live_by_site, 3]])
      expect(Memintro.top(older_than_gcs: 3, by: :live_blocks).map(&:live_blocks)).to eq([8, 2])
    end

    it "says what is allowed" do
      expect { Memintro.top(-1) }.to raise_error(ArgumentError, "n is -1; it must be an Integer from 0, or nil")
      expect { Memintro.top("3") }.to raise_error(TypeError, /n is "3"/)
      expect { Memintro.top(by: :size) }.to raise_error(ArgumentError, /by is :size; it must be one of :allocations, /)
      expect { Memintro.top(older_than_gcs: 1.5) }.to raise_error(TypeError, /older_than_gcs is 1.5/)
      expect { Memintro.top(older_than_gcs: 2**32) }.to raise_error(
        ArgumentError, "older_than_gcs is 4294967296; it must be an Integer from 0 to 4294967295, or nil"
      )
      expect { Memintro.top(2**63) }.to raise_error(
        ArgumentError, "n is 9223372036854775808; it must be an Integer from 0 to 9223372036854775807, or nil"
      )
    end

    it "takes a number that is greater than all there are for all, and makes no room for more" do
      expect([Memintro.top(2**62), Memintro.top((2**63) - 1)]).to all(eq(Memintro.top(nil)))
    end
  end

  describe ".[]" do
    it "finds a whole name, and the end of one from a folder or file on" do
      ["/app/leak.rb:12", "leak.rb:12", "./leak.rb:12", "app/leak.rb:12"].each do |name|
        expect(Memintro[name]&.path).to eq("/app/leak.rb"), name
      end
      expect(Memintro["(gc)"].kind).to eq(:pseudo)
      expect(Memintro["libz.so.1(deflateInit2_+0x9c)"].kind).to eq(:native)
    end

    it "knows nothing of part of a file's name, another line or another file" do
      expect(["eak.rb:12", "leak.rb:1", "leak.rb:13", "leak.rb", "", ":12", "gone.rb:12"].map { |name| Memintro[name] })
        .to all(be_nil)
    end

    it "prefers the exact path to a longer one that ends so" do
      native.rows = [[3, :ruby, "/b/a.rb", 1, 1, 0, 8, 0, 0, 0, 0], [4, :ruby, "a.rb", 1, 2, 0, 8, 0, 0, 0, 0]]
      expect(Memintro["a.rb:1"].path).to eq("a.rb")
    end

    it "lists the matches of an ambiguous end" do
      native.rows = Array.new(12) { |i| [i, :ruby, "/app#{i}/a.rb", 1, 1, 0, 8, 0, 0, 0, 0] }
      expect { Memintro["a.rb:1"] }.to raise_error(Memintro::AmbiguousNameError) { |error|
        expect(error.message)
          .to start_with("\"a.rb:1\" is the end of 12 call sites; give more of the path:\n  /app0/a.rb:1")
        expect(error.message).to end_with("/app9/a.rb:1\n  and 2 more")
        expect(error.matches.size).to eq(12)
      }
    end

    it "compares bytes where paths are not valid in any encoding" do
      native.rows = [[3, :ruby, "/app/\xFF\xE9.rb".b, 1, 1, 0, 8, 0, 0, 0, 0],
                     [4, :ruby, "/app/é.rb", 1, 1, 0, 8, 0, 0, 0, 0]]
      expect(Memintro["\xFF\xE9.rb:1"].path).to eq("/app/\xFF\xE9.rb".b)
      expect(Memintro["é.rb:1"].path).to eq("/app/é.rb")
    end

    it "refuses what is no name" do
      expect { Memintro[12] }.to raise_error(TypeError, "name is 12; it must be a String")
    end
  end

  describe ".report" do
    it "refuses what it cannot write to, and formats and figures it does not have" do
      expect { Memintro.report(:stdout) }.to raise_error(TypeError, /:stdout cannot be written to/)
      expect { Memintro.report(StringIO.new, format: :xml) }
        .to raise_error(ArgumentError, "format is :xml; it must be one of :text, :json, :html, :folded, :speedscope")
      expect { Memintro.report(StringIO.new, by: :size) }.to raise_error(ArgumentError, /by is :size/)
      expect { Memintro.report(StringIO.new, top: "x") }.to raise_error(TypeError, /top is "x"/)
    end
  end
end
