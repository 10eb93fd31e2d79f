# frozen_string_literal: true

require_relative "../../spec_helper"
require_relative "../../support/doubts"
require_relative "../../support/saved_report"

RSpec.describe "A report as JSON" do
  let(:native) { Memintro::Native::Report }

  def row(id, name, bytes, **figures)
    [id, :ruby, name, figures.fetch(:line, 1), 1, figures.fetch(:frees, 0), bytes, 0, 0, 0, 0]
  end

  it "has version, process, totals and all call sites with all figures" do
    report = JSON.parse(SavedReport.written(SavedReport.read, format: :json), symbolize_names: true)
    expect(report.keys).to eq(%i[version process totals call_sites])
    expect(report[:version]).to eq(1)
    expect(report[:process]).to eq(SavedReport::PROCESS.merge(mode: "full"))
    expect(report[:totals]).to eq(Memintro::Totals.new(*FakeNative::TOTALS.first(7)).to_h)
    sites = FakeNative::ROWS.map { |row| Memintro::CallSite.new(row) }.sort_by { |site| [-site.live_bytes, site.name] }
    expect(report[:call_sites].sort_by { |site| [-site[:live_bytes], site[:name]] })
      .to eq(sites.map { |site| site.to_h.merge(kind: site.kind.to_s) })
  end

  it "is sorted and cut as asked" do
    report = JSON.parse(SavedReport.written(SavedReport.read, format: :json, top: 2, by: :frees))
    expect(report["call_sites"].map { |site| site["frees"] }).to eq([50_000, 4])
  end

  it "is the same when it is read and written again, also of estimates" do
    doubts = Doubts.of_row([16.0, 9.0, 400.0, 300.0], [1.0, 1.0, 2.0, 2.0], growth: 64.0, ages: 36.0, covariance: 18.0)
    rows = [[0, :ruby, "/app/a.rb", 7, 100, 40, 5_000, 2_000, 80, 3, 500, doubts, [7, 1]]]
    totals = [5_000, 2_000, 100, 40, 1, 64, 2, Doubts.of_totals([900.0, 500.0, 25.0, 9.0], [1.0] * 4)]
    first = SavedReport.json(SavedReport.read(rows: rows, totals: totals))
    again = SavedReport.json(native.read(JSON.generate(first)))
    approximate = ->(value) { value.is_a?(Float) ? value.round(6) : value }
    expect(again["call_sites"].first.transform_values(&approximate))
      .to eq(first["call_sites"].first.transform_values(&approximate))
    expect(again["totals"].transform_values(&approximate)).to eq(first["totals"].transform_values(&approximate))
    expect(first["totals"]).to include("estimated" => true, "allocated_bytes_standard_error" => be > 30)
  end

  it "is given to the output in pieces that end with a line" do
    rows = Array.new(9_000) { |i| row(i, "/app/#{'x' * 100}#{i}.rb", 9) }
    pieces = []
    io = Object.new
    io.define_singleton_method(:write) { |text| pieces << text }
    Memintro::Report.write(SavedReport.read(rows: rows), io, format: :json)
    expect(pieces.size).to be >= 2
    expect(pieces).to all(end_with("\n")).and all(satisfy { |piece| piece.bytesize <= 1 << 20 })
    expect(JSON.parse(pieces.join)["call_sites"].size).to eq(9_000)
  end

  it "is valid JSON in UTF-8 for any names" do
    names = ["/a\"b\\c.rb", "/new\nline\t\x00\x7F\u2028.rb", "/é.rb"]
    rows = names.each_with_index.map { |name, i| row(i, name, 9 - i) }
    text = SavedReport.written(SavedReport.read(rows: rows), format: :json)
    expect(text.dup.force_encoding("UTF-8")).to be_valid_encoding
    expect(JSON.parse(text)["call_sites"].map { |site| site["path"] }).to eq(names)
  end

  # C0, DEL, C1, marks of direction, separators of lines.
  OBEYED_BY_TERMINALS = "\e\a\x7F\u009b\u061C\u200E\u200F\u2028\u2029\u202A\u202E\u2066\u2069"
  ESCAPED_FOR_TERMINALS = '\u001b\u0007\u007f\u009b\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069'

  it "escapes all that a terminal acts upon, and says the same to a parser" do
    text = SavedReport.written(SavedReport.read(rows: [row(1, "/a#{OBEYED_BY_TERMINALS}é.rb", 9)]), format: :json)
    expect(text).to include("\"path\":\"/a#{ESCAPED_FOR_TERMINALS}é.rb\"")
    expect(JSON.parse(text)["call_sites"].first["path"]).to eq("/a#{OBEYED_BY_TERMINALS}é.rb")
    text = Memintro::JsonText.dump({ OBEYED_BY_TERMINALS => "é#{OBEYED_BY_TERMINALS}" })
    expect(text).to eq("{\"#{ESCAPED_FOR_TERMINALS}\":\"é#{ESCAPED_FOR_TERMINALS}\"}")
  end

  it "does not load a json gem into the process" do
    code = "require 'memintro'; Memintro.report($stdout, format: :json); " \
           "exit($LOADED_FEATURES.grep(/json/).grep_v(%r{/memintro/}).size)"
    result = run_ruby(code: code)
    expect(result.status.exitstatus).to eq(0), result.stderr
  end

  describe "read from a file" do
    def refusal(text)
      native.read(text)
      nil
    rescue Memintro::DumpError => e
      e.message
    end

    it "has the same figures" do
      sites = Memintro::CallSites.from_report(SavedReport.read)
      expect(sites.totals).to eq(Memintro::Totals.new(*FakeNative::TOTALS.first(7)))
      expect(sites.top(nil).map(&:to_h).sort_by { |site| site[:name] })
        .to eq(FakeNative::ROWS.map { |row| Memintro::CallSite.new(row).to_h }.sort_by { |site| site[:name] })
      expect(sites.process).to include(pid: 42, mode: "full")
    end

    it "refuses a process that is described by anything but texts and numbers" do
      [{ "x" => 1 }, [1]].each do |wrong|
        expect(refusal(SavedReport.text(process: { program: wrong })))
          .to match(/: process\.program is (?:an object|a list); it must be a text/)
      end
    end

    it "names each figure that is missing or no number, also of estimates" do
      figures = JSON.parse(SavedReport.text)
      figures["totals"].each_key do |name|
        next if name.match?(/live/)

        { figures["totals"].except(name) => "missing",
          figures["totals"].merge(name => "7") => '"7"; it must be an Integer' }.each do |totals, wrong|
          expect(refusal(JSON.generate(figures.merge("totals" => totals))))
            .to start_with("not a report of memintro: totals.#{name} is #{wrong}")
        end
      end
      totals = figures["totals"].merge("estimated" => true)
      expect(refusal(JSON.generate(figures.merge("totals" => totals))))
        .to match(/totals\.allocated_bytes_standard_error is missing/)
    end

    it "says what a file is that it cannot read" do
      { "hello" => /neither a raw dump nor a JSON report/, "" => /neither/, "{\"version\":1," => /cut short/,
        "{}" => /the report has no layout, and memintro .* reads layout 1; use the version/,
        "{\"version\":7,\"call_sites\":[3]}" => /the report has layout 7, and memintro .* reads layout 1/,
        "{\"version\":1}" => /not a report of memintro: process is missing/,
        '{"version":1,"process":{"pid":1},"totals":[]}' => /: totals is a list; it must be an object\z/,
        '{"version":1,"totals":{}}' => /: totals\.allocated_bytes is missing\z/,
        '{"version":1,"call_sites":[3]}' => /: call_sites\[0\] is 3; it must be an object\z/,
        '{"version":1,"call_sites":7}' => /: call_sites is 7; it must be a list of at most 16777216\z/,
        '{"version":1,"call_sites":[{"kind":"gem"}]}' => /: call_sites\[0\]\.kind is "gem"; it must be one of "ruby", /,
        '{"version":1,"call_sites":[{"kind":"native","name":"a"}]}' => /: call_sites\[0\]\.allocations is missing\z/,
        '{"version":1,"call_sites":[{}]}' => /: call_sites\[0\]\.kind is missing\z/ }.each do |text, message|
        expect(refusal(text)).to match(message)
      end
    end

    it "refuses stacks that name frames that are not there" do
      stack = ["ruby", "/a.rb", 1, *[0] * 7, nil, nil, nil, [0, 3]]
      expect(refusal(SavedReport.text(frames: [["/a.rb", 1, nil]], stacks: [stack])))
        .to eq("not a report of memintro: stacks[0] has the frame 3, and there are 1")
      expect(refusal(SavedReport.text(frames: [], stacks: [stack.drop(1)])))
        .to match(/\Anot a report of memintro: stacks\[0\]\[0\] is "\/a\.rb"; it must be one of/)
    end
  end
end
