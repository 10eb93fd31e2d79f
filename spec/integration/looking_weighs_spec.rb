# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/listening"
require_relative "../../lib/memintro"
require_relative "../../lib/memintro/control/client"

# The cost of commands for the process that answers: very few objects, for any size of the process, and no long pause.
RSpec.describe "looking at a running process", :listening do
  # A line on standard input is answered with the objects made so far. ARGV: objects, classes, sequences, call sites.
  SERVER = <<~'RUBY'
    objects, classes, sequences, sites = ARGV.map { |text| Integer(text) }
    Memintro.start
    kinds = Array.new(classes) { |i| Object.const_set("Kind#{i}", Class.new) }
    code = Module.new
    sequences.times { |i| code.module_eval("def m#{i}(a) = a", "app/#{i % 900}.rb", i + 1) }
    $sites = Array.new(sites) { |i| code.module_eval("'x' * 300", "app/site#{i}.rb", i + 1) }
    $kept = Array.new(objects) { |i| kinds[i % classes].new }
    2.times { GC.start }
    Memintro.listen
    puts :ready
    puts GC.stat(:total_allocated_objects) while $stdin.gets
  RUBY
  SIZES = { "small" => [100, 5, 10, 5], "large" => [30_000, 300, 4_000, 3_000] }.freeze
  MOST_OBJECTS = 2_000
  COMMANDS = {
    "snapshot" => %w[snapshot --json], "histogram" => %w[histogram], "iseqs" => %w[iseqs --by location],
    "top" => %w[top], "top --older-than" => %w[top --older-than 1], "report" => %w[report],
    "report of all sites" => %w[report --top all], "report --json" => %w[report --json],
    "diff" => %w[diff --for 0.1], "diff --no-gc" => %w[diff --for 0.1 --no-gc]
  }.freeze

  def start_server(*sizes, env: {})
    reader, @input = IO.pipe
    @server = start_program(SERVER, *sizes, env: env, in: reader)
    reader.close
  end

  def made
    @input.puts
    @server.line.to_i
  end

  # By the command, the first time and the second; what asking for the number makes is not among it.
  def objects_of(words)
    asking = -made + made
    Array.new(2) do
      before = made
      memintro(*words, @server.pid).must_succeed
      made - before - asking
    end
  end

  SIZES.each do |name, sizes|
    it "makes at most #{MOST_OBJECTS} objects in a #{name} one, by each command, the first time too" do
      start_server(*sizes)
      found = COMMANDS.transform_values { |words| objects_of(words) }
      expect(found.values.flatten).to all(be_between(0, MOST_OBJECTS)), found.inspect
    end
  end

  it "makes no more for a request for all call sites as text" do
    start_server(*SIZES.fetch("large"))
    client = Memintro::Control::Client.new(@server.pid, File.join(socket_folder, "#{@server.pid}.sock"))
    asking = -made + made
    requests = [["top", { n: nil }], ["report", { top: nil }], ["top", { n: nil, older_than_gcs: 1 }]]
    found = requests.map do |command, arguments|
      client.ask(command, arguments)
      before = made
      text = client.ask(command, arguments)
      expect(text.lines.size).to be > 100
      made - before - asking
    end
    expect(found).to all(be_between(0, MOST_OBJECTS))
  end

  def idle(code = "")
    start_program("#{code}; Memintro.listen; puts :ready; sleep")
  end

  it "shows no growth in an idle one, and nothing of memintro's own" do
    process = idle("$kept = Array.new(20_000) { |i| [i.to_s, { i => i }] }; GC.start")
    diff = JSON.parse(memintro("diff", process.pid, "--for", "0.2", "--json").must_succeed.stdout)
    lists = diff.fetch("sections")
    names = %w[classes iseqs iseq_locations].flat_map { |list| lists.fetch(list).map { |row| row["name"] } }
    expect(names.grep(/Memintro|lib\/memintro/)).to eq([])
    grown = lists.fetch("classes").to_h { |row| row.values_at("name", "count_growth") }
    # Objects to which a thread's stack still refers.
    expect(grown.slice("String", "Array", "Hash").values).to all(be <= 100), grown.inspect
    expect(lists.fetch("types").map { |row| row["growth"] }).to all(be_between(-400, 400))
  end

  it "leaves memintro's classes, files and instances out of all lists, by socket and in the process itself" do
    process = idle("$reports = Array.new(500) { Memintro.histogram(3) }")
    text = memintro("snapshot", process.pid, "--json").must_succeed.stdout
    whole = JSON.parse(text)
    names = whole["classes"].map { |row| row["name"] } + whole["occupancy"]["holders"].map { |row| row["name"] } +
            whole["iseqs"].values_at("paths", "locations").flatten.map { |row| row["name"] }
    expect(names).to include("String", "imemo_iseq").and include(a_string_matching(/rubygems/))
    expect(names.grep(/Memintro|#{Subprocess::LIB}/)).to eq([])
    inside = run_ruby(code: <<~RUBY, requires: %w[memintro json]).must_succeed.json
      kept = Array.new(500) { Memintro.histogram(3) }
      own = ->(rows) { rows.map(&:name).grep(/Memintro|lib.memintro/) }
      # The first reading loads code, and leaves garbage.
      Memintro.snapshot(:all)
      [Memintro.each_iseq, Memintro.internals].each(&:first)
      GC.start
      s = Memintro.snapshot(:all)
      code = Memintro.each_iseq.count { |iseq| iseq.path.match?(%r{/lib/memintro(\\.rb|/)}) }
      all = Memintro.internals.find { |row| row.name == "imemo_iseq" }.count
      puts JSON.generate(own: own.(s.classes) + own.(s.iseqs[:paths]) + own.(s.iseqs[:locations]), code: code,
                         iseqs: s.iseqs[:count], all: all, internals: s.internals.find { |r| r.name == "imemo_iseq" }.count,
                         instances: Memintro.histogram.find { |row| row.name == "Memintro::HistogramRow" }.count)
    RUBY
    expect(inside).to include(own: [], code: be > 300, instances: be >= 1_500)
    expect(inside[:iseqs]).to eq(inside[:internals]).and be_within(30).of(inside[:all] - inside[:code])
  end

  HOLDER = %w[name count pages].freeze

  # The structure of a value: keys in their order, and the kinds of what they hold.
  def shape(value)
    case value
    # Whether a page is sparse just then is chance.
    when Hash then value.map { |key, item| [key, key == "holders" ? item.flat_map(&:keys) - HOLDER : shape(item)] }
    when Array then value.map { |item| shape(item) }.uniq
    when Numeric then :number
    else value.class
    end
  end

  it "answers by the socket what Memintro.snapshot and Memintro.report write in the process" do
    process = start_program(<<~'RUBY')
      Memintro.start(mode: :sampled, sample_bytes: 4_096)
      $kept = Array.new(500) { "x" * 3_000 } + eval("Array.new(500) { 'y' * 3_000 }", nil, "b\xE9\xFF.rb".b, 7)
      Memintro.stop
      snapshot = Memintro.snapshot(:all).to_json
      report = (+"").tap { |text| Memintro.report(Struct.new(:text) { def write(part) = text << part }.new(text), format: :json) }
      Memintro.listen
      puts :ready, snapshot.tr("\n", " "), report.tr("\n", " ")
      sleep
    RUBY
    inside = Array.new(2) { JSON.parse(process.line) }
    path = File.join(socket_folder, "#{process.pid}.sock")
    outside = { "snapshot" => { parts: ["all"] }, "report" => { format: "json" } }.map do |command, arguments|
      JSON.parse(Memintro::Control::Client.new(process.pid, path).ask(command, arguments))
    end
    inside.zip(outside).each do |one, other|
      expect(other.keys).to eq(one.keys)
      one.each_key do |key|
        expect(shape(other[key])).to eq(shape(one[key])), key unless key == "call_sites"
      end
      # Nothing was tracked since: the same figures, to the last digits of what was computed from them.
      expect(other["totals"].except("tracker_bytes")).to eq(one["totals"].except("tracker_bytes"))
      expect(other["call_sites"].map(&:keys)).to eq(one["call_sites"].map(&:keys))
      other["call_sites"].zip(one["call_sites"]).each do |row, expected|
        expect(row.reject { |_, value| value.is_a?(Float) }).to eq(expected.reject { |_, value| value.is_a?(Float) })
        errors = ->(site) { site.values.grep(Float) }
        errors[row].zip(errors[expected]).each do |found, wanted|
          expect(found).to be_within(1e-6 + (wanted.abs * 1e-9)).of(wanted)
        end
      end
    end
    names = outside.map { |whole| whole["call_sites"].map { |site| site["name"] } }
    expect(names[0]).to include({ "base64" => ["b\xE9\xFF.rb:7".b].pack("m0") })
    expect(names[1]).to include("b\\xE9\\xFF.rb:7")
    counts = ->(rows) { rows.to_h { |row| row.values_at("name", "count") } }
    types = [inside[0], outside[0]].map { |whole| counts[whole["types"]] }
    # The code of a socket has some classes of its own.
    expect(types[1]["T_CLASS"]).to be_within(100).of(types[0]["T_CLASS"])
    expect(Memintro::Snapshot::Saved.parse(JSON.generate(outside[0])).pid).to eq(process.pid)
  end

  # glibc keeps what is free at the end of a thread's arena, up to twice the largest block that had a mapping of its
  # own: 5.4 MB of what an answer was made of were kept after some answers and not after others. With a threshold of
  # 128 KiB that is set, all that is free there goes back, and what stays is in use.
  it "gives back the memory of its answers" do
    start_server(20_000, 100, 5_000, 1_000, env: { "MALLOC_TRIM_THRESHOLD_" => "131072" })
    # An answer has come before its memory is given back: 6 MB, at once on a calm machine, and later on a busy one.
    rss = -> { Memintro::ProcessMemory.new(@server.pid).rss }
    3.times { memintro("snapshot", @server.pid, "--json").must_succeed }
    before = Array.new(10) { sleep(0.05) && rss.call }.min
    10.times { memintro("snapshot", @server.pid, "--json").must_succeed }
    grown = nil
    100.times { (grown = rss.call - before) < 4 << 20 ? break : sleep(0.05) }
    expect(grown).to be < 4 << 20
  end

  # The clock says how long another thread stood still, and on a busy machine that is mostly others' doing. What the
  # answering thread computed meanwhile is looking's own, and no pause of its making is longer.
  it "lets another thread wait 20 ms at most at a time, with 6 million objects", :long, deadline_seconds: 1_800 do
    bench = File.join(Subprocess::ROOT, "bench/introspection/looking.rb")
    result = run_command(RbConfig.ruby, bench, "6000000", deadline_seconds: 1_800).must_succeed
    found = result.stdout.scan(/^\S.*? +[\d.]+ ms +(\d+) objects .* ([\d.]+) ms work  \(aim/)
    expect(found.size).to eq(8)
    expect(found.map { |objects, _| objects.to_i }).to all(be_between(1, MOST_OBJECTS)), result.stdout
    expect(found.map { |_, work| work.to_f }).to all(be_between(0.01, 20.0)), result.stdout
  end
end
