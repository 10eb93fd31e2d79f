# frozen_string_literal: true

require_relative "../../spec_helper"
require "json"
require "memintro"
require "memintro/malloc/call_sites"
require "stringio"
require "tmpdir"

RSpec.describe Memintro::Report::Json do
  include_context "with a fake native"

  def json(**options)
    StringIO.new.tap { |io| Memintro.report(io, format: :json, **options) }.string
  end

  it "gives version, process, totals and all call sites with all attributes" do
    report = JSON.parse(json, symbolize_names: true)
    expect(report.keys).to eq(%i[version process totals call_sites])
    expect(report[:version]).to eq(1)
    expect(report[:process]).to include(pid: Process.pid, ruby: RUBY_VERSION, memintro: Memintro::VERSION, mode: "full",
                                        tracking: true, preloaded: false, generation: 7)
    expect(report[:totals]).to eq(Memintro.totals.to_h)
    expect(report[:call_sites]).to eq(Memintro.top(nil).map { |site| site.to_h.merge(kind: site.kind.to_s) })
  end

  it "is sorted and cut as asked" do
    report = JSON.parse(json(top: 2, by: :frees))
    expect(report["call_sites"].map { |site| site["frees"] }).to eq([50_000, 4])
  end

  it "is sorted alike however many slices there are" do
    native.rows = Array.new(1_000) { |i| [i, :ruby, "/a.rb", i, 9, i % 7, i * 37 % 1_009, 0, 0, 0, 0] }
    [[:live_bytes, nil], [:frees, 300], [:mean_lifespan, nil]].each do |by, top|
      expect(JSON.parse(json(by: by, top: top))["call_sites"])
        .to eq(JSON.parse(JSON.generate(Memintro.top(top, by: by).map(&:to_h))))
    end
  end

  it "is valid JSON in UTF-8 whatever the names hold" do
    names = ["/a\"b\\c.rb", "/new\nline\t\x00\x7F\u2028.rb", "/bad\xFF\xE9.rb".b, "/sjis\x82\xA0.rb".b, "/é.rb"]
    native.rows = names.each_with_index.map { |name, i| [i, :ruby, name, 1, 1, 0, 9 - i, 0, 0, 0, 0] }
    text = json
    expect(text.dup.force_encoding("UTF-8")).to be_valid_encoding
    expect(JSON.parse(text)["call_sites"].map { |site| site["path"] })
      .to eq(["/a\"b\\c.rb", "/new\nline\t\x00\x7F\u2028.rb", "/bad\\xFF\\xE9.rb", "/sjis\\x82\\xA0.rb", "/é.rb"])
  end

  # C0, DEL, C1, marks of direction, separators of lines.
  ACTED_UPON = "\e\a\x7F\u009b\u061C\u200E\u200F\u2028\u2029\u202A\u202E\u2066\u2069"
  ESCAPED = '\u001b\u0007\u007f\u009b\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069'

  it "escapes all that a terminal acts upon, and says the same to a parser" do
    native.rows = [[1, :ruby, "/a#{ACTED_UPON}é.rb", 1, 1, 0, 9, 0, 0, 0, 0]]
    expect(json).to include("\"path\":\"/a#{ESCAPED}é.rb\"")
    expect(JSON.parse(json)["call_sites"].first["path"]).to eq("/a#{ACTED_UPON}é.rb")
    require "memintro/support/json_text"
    text = Memintro::JsonText.dump({ ACTED_UPON => "é#{ACTED_UPON}" })
    expect(text).to eq("{\"#{ESCAPED}\":\"é#{ESCAPED}\"}")
  end

  it "does not load a json gem into the process" do
    code = "require 'memintro'; Memintro.report($stdout, format: :json); " \
           "exit($LOADED_FEATURES.grep(/json/).grep_v(%r{/memintro/}).size)"
    result = run_ruby(code: code)
    expect(result.status.exitstatus).to eq(0), result.stderr
  end

  describe Memintro::CallSites::Reader do
    def saved(text)
      Dir.mktmpdir { |folder| yield File.join(folder, "r.json").tap { |path| File.write(path, text) } }
    end

    it "reads a saved report back, figure by figure" do
      saved(json) do |path|
        snapshot = described_class.read(path)
        expect(snapshot.totals).to eq(Memintro.totals)
        expect(snapshot.top(nil)).to eq(Memintro.top(nil))
        expect(snapshot.process).to include(pid: Process.pid, mode: "full")
      end
    end

    it "refuses a process that is described by anything but texts and numbers" do
      [{ "x" => 1 }, [1]].each do |wrong|
        report = JSON.parse(json)
        report["process"]["program"] = wrong
        saved(JSON.generate(report)) do |path|
          expect { described_class.read(path) }
            .to raise_error(Memintro::DumpError, /its process has .* for "program"/)
        end
      end
    end

    it "makes a snapshot of a raw dump" do
      dump = { pid: 9, time: 1_700_000_000, signal: 11, exit_status: 0, totals: FakeNative::TOTALS,
               sites: FakeNative::ROWS }
      allow(native).to receive(:read_dump).with(anything).and_return(dump)
      saved("MEMINTR\x01...") do |path|
        snapshot = described_class.read(path)
        expect(snapshot.process).to include(pid: 9, time: "2023-11-14T22:13:20Z", signal: 11, exit_status: nil)
        expect(snapshot.top(1).first.name).to eq("/app/leak.rb:12")
      end
    end

    it "names each figure that is missing or no number, also of estimates" do
      figures = JSON.parse(json)
      figures["totals"].each_key do |name|
        next if name.match?(/live/)

        [figures["totals"].except(name), figures["totals"].merge(name => "7")].each do |totals|
          expect { described_class.from_json(figures.merge("totals" => totals)) }
            .to raise_error(Memintro::DumpError, "not a whole report of memintro: totals has no number #{name.inspect}")
        end
      end
      expect { described_class.from_json(figures.merge("totals" => figures["totals"].merge("estimated" => true))) }
        .to raise_error(Memintro::DumpError, /totals has no number "allocated_bytes_standard_error"/)
    end

    it "says what a file is that it cannot read" do
      { "hello" => /neither a raw dump nor a JSON report/, "" => /neither/, "{\"version\":1," => /cut short/,
        "{}" => /the report has layout nil, and memintro .* reads layout 1; use the version/,
        "{\"version\":1}" => /not a report of memintro: it has no call_sites/,
        '{"version":1,"call_sites":[]}' => /not a report of memintro: it has no totals/,
        '{"version":1,"call_sites":[],"totals":[]}' => /not a report of memintro: it has no totals/,
        '{"version":1,"call_sites":[],"totals":{}}' => /: totals has no number "allocated_bytes"\z/,
        '{"version":1,"call_sites":[3]}' => /not a report of memintro: call site 1 is 3/,
        '{"version":1,"call_sites":[{"kind":"gem","name":"a"}]}' => /call site 1 has no kind or no name/,
        '{"version":1,"call_sites":[{"kind":"native","name":"a"}]}' => /call site 1 has no number "live_bytes"\z/,
        '{"version":1,"call_sites":[{}]}' => /call site 1 has no kind/ }.each do |text, message|
        saved(text) { |path| expect { described_class.read(path) }.to raise_error(Memintro::DumpError, message) }
      end
    end
  end
end
