# frozen_string_literal: true

require_relative "../spec_helper"
require "fileutils"
require "tmpdir"
require "zlib"

# `memintro requests`, from logs as they are to the answer.
RSpec.describe "memintro requests" do
  around { |example| Dir.mktmpdir("memintro requests") { |folder| Dir.chdir(folder) { example.run } } }

  # Requests of one kind by another's seed: method, path, bytes, calls, growth of RSS, milliseconds.
  def generated(count)
    random = Random.new(7)
    Array.new(count) do |i|
      paths = ["/posts/#{i}", "/orders/#{i}/items", "/up", "/blob/#{i.to_s(16).rjust(16, 'a')}0"]
      method, path = [%w[GET POST GET GET][i % 4], paths[i % 4]]
      { method: method, path: path, bytes: random.rand(1 << (10 + random.rand(14))), calls: random.rand(1_000),
        rss: random.rand(8_192) - 2_048, ms: random.rand(9_999) / 10.0, pid: 100 + (i % 3) }
    end
  end

  def logfmt(one)
    format("I, [2026-01-01T12:00:00.250000 #%<pid>d]  INFO -- : MEMORY method=%<method>s path=%<path>s status=200 " \
           "duration_ms=%<ms>.1f rss_bytes=1048576 rss_delta_bytes=%<rss>d malloc_bytes=%<bytes>d " \
           "malloc_calls=%<calls>d in_flight=1 pid=%<pid>d\n", one)
  end

  def object(one)
    fields = { method: one[:method], path: one[:path], duration_ms: one[:ms], rss_bytes: 1_048_576,
               rss_delta_bytes: one[:rss], malloc_bytes: one[:bytes], malloc_calls: one[:calls], pid: one[:pid] }
    "#{JSON.generate(event: 'MEMORY', **fields)}\n"
  end

  def requests(*arguments, **options) = run_memintro("requests", *arguments, **options)

  def json(*arguments, **options)
    JSON.parse(requests("--json", *arguments, **options).must_succeed.stdout, symbolize_names: true)
  end

  # Slow and obvious.
  def summed(all)
    kinds = all.group_by { |one| "#{one[:method]} #{one[:path].gsub(%r{/(\d+|[0-9a-f]{8,})(?=/|\z)}, '/:id')}" }
    kinds.transform_values do |some|
      bytes = some.map { |one| one[:bytes] }.sort
      { requests: some.size, malloc_bytes: bytes.sum, malloc_calls: some.sum { |one| one[:calls] },
        malloc_bytes_p50: bytes[(bytes.size * 0.50).ceil - 1], malloc_bytes_p95: bytes[(bytes.size * 0.95).ceil - 1],
        malloc_bytes_max: bytes.last, rss_delta_bytes: some.sum { |one| one[:rss] },
        duration_ms: some.sum { |one| one[:ms] }.round(1) }
    end
  end

  it "sums up what is known of each kind, exactly, from both forms of line and through gzip" do
    all = generated(4_000)
    expected = summed(all)
    File.write("text.log", "noise\n#{all.first(1_000).map { |one| logfmt(one) }.join}")
    Zlib::GzipWriter.open("old.log.gz") { |gz| gz.write(all[1_000, 2_000].map { |one| object(one) }.join) }
    rest = [*all.drop(3_000).map { |one| logfmt(one) }, "MEMORY[1]: time: 2026-01-01 12:00:00 +0000 rss: 1.0 MB\n"]
    answer = json("text.log", "old.log.gz", "-", stdin: rest.join)
    rows = answer[:rows].to_h { |row| [row[:request], row] }
    expect(rows.keys).to match_array(expected.keys)
    expected.each { |kind, figures| expect(rows[kind]).to include(figures) }
    expect(rows.values.map { |row| row[:quantiles_exact] }).to all(be(true))
    bytes = answer[:rows].map { |row| row[:malloc_bytes] }
    expect(bytes).to eq(bytes.sort.reverse)
    expect(answer[:totals]).to include(requests: 4_000, malloc_bytes: all.sum { |one| one[:bytes] })
    expect(answer).to include(processes: 3, kinds: 4)
    expect(answer[:lines]).to eq(other_memory: 1, skipped: 1, dropped: 0, beyond_belief: 0)
    kind, most = expected.max_by { |_, one| one[:malloc_bytes] }
    share = (100.0 * most[:malloc_bytes] / all.sum { |one| one[:bytes] }).round
    expect(answer[:answer]).to start_with("#{kind} allocated #{share}% of all bytes: ")
      .and end_with(" in 1,000 of 4,000 requests.")
  end

  it "tells quantiles of many requests within the error that it names" do
    all = generated(40_000)
    File.write("a.log", all.map { |one| logfmt(one) }.join)
    expected = summed(all)
    json("a.log")[:rows].each do |row|
      truth = expected.fetch(row[:request])
      expect(row).to include(quantiles_exact: false, **truth.reject { |name, _| name.match?(/_p\d+\z|duration/) })
      %i[malloc_bytes_p50 malloc_bytes_p95].each do |name|
        expect(row[name]).to be_within(truth[name] / 250.0).of(truth[name]), "#{row[:request]} #{name}"
      end
    end
    expect(requests("a.log").must_succeed.stdout)
      .to match(%r{^ *[\d.]+ GiB .* ~[\d.]+ [KM]iB .*POST /orders/:id/items$}).and match(/^~: within 0\.4%$/)
  end

  it "answers in the first sentence, by each figure, with the table sorted by the same" do
    all = generated(400)
    File.write("a.log", all.map { |one| logfmt(one) }.join)
    expected = summed(all)
    { "bytes" => :malloc_bytes, "calls" => :malloc_calls, "p95" => :malloc_bytes_p95, "max" => :malloc_bytes_max,
      "rss" => :rss_delta_bytes }.each do |by, figure|
      kind, = expected.max_by { |_, one| one[figure] }
      out = requests("--by", by, "a.log").must_succeed.stdout.lines
      expect(out.first).to include(kind), "#{by}: #{out.join}"
      expect(out.grep(%r{ (?:GET|POST) /\S+\n\z}).first).to end_with(" #{kind}\n")
      figures = json("--by", by, "a.log")[:rows].map { |row| row[figure] }
      expect(figures).to eq(expected.values.map { |one| one[figure] }.sort.reverse)
    end
    expect(requests("--by", "count", "--top", "1", "a.log").stdout)
      .to match(/ was asked for most often: 100 of 400 requests, 25% of them\.$/).and match(/^3 more kinds, /)
  end

  it "goes by growth of RSS where nothing was tracked, and says so" do
    File.write("a.log", "MEMORY method=GET path=/a rss_bytes=9 rss_delta_bytes=4096\n" \
                        "MEMORY method=GET path=/b rss_bytes=9\n" \
                        "MEMORY job=Import queue=default rss_bytes=9 rss_delta_bytes=8192\n")
    out = requests("a.log").must_succeed.stdout
    note = "No line has malloc_bytes, for nothing was tracked: call Memintro.start in the application. " \
           "By growth of RSS:"
    expect(out.lines(chomp: true).first(2))
      .to eq(["RSS grew most during job Import: by 8.0 KiB in 1 of 3 requests.", note])
    expect(out.lines.grep(/job Import$/).last.split).to eq(%w[- - 1 - - - - +8.0 KiB job Import])
  end

  it "takes no harm from a hostile log, in its terminal or its memory" do
    File.open("a.log", "wb") do |log|
      log << "MEMORY method=GET path=\"/\e]0;x\a\u202E\" malloc_bytes=5\n"
      log << JSON.generate(event: "MEMORY", method: "G\eT", path: "/\e[2J\n\u0000", malloc_bytes: 7) << "\n"
      log << "MEMORY path=/a malloc_bytes=99999999999999999999999 rss_delta_bytes=-1e99\n"
      log << "\xFF\xFEMEMORY path=/\xFF malloc_bytes=1\n"
      log << "MEMORY path=/#{'x' * 2_000_000} malloc_bytes=3\n" << ("[" * 100_000) << "MEMORY {\n"
      300_000.times { |i| log << "MEMORY method=GET path=/#{i.to_s.tr('0-9', 'a-j')} malloc_bytes=10\n" }
    end
    out = requests("--top", "all", "a.log").must_succeed.stdout
    expect(out).to be_valid_encoding
    expect(out.delete("\n").scan(/[[:cntrl:]\u202e]/)).to eq([])
    expect(out.scan(/ GET \//).size).to be_between(1_990, 2_001)
    expect(out).to match(/^ *2\.8 MiB .* \(other\)$/).and match(/^more than 2,000 kinds: /)
      .and match(/^1 line with a figure beyond belief/)
    expect(out).to include('? /\x1B[2J\x0A\x00').and include('GET /\x1B]0;x\x07\xE2\x80\xAE')
  end

  it "stays below 100 MB, however large the log and its kinds" do
    log, writer = IO.pipe
    out, theirs = IO.pipe
    pid = spawn(Subprocess.bare_env, RbConfig.ruby, Subprocess::EXE, "requests", "--json", "-", in: log, out: theirs)
    [log, theirs].each(&:close)
    sent = 0
    100.times do |j|
      lines = Array.new(10_000) do |i|
        "MEMORY method=GET path=/k#{(97 + (i % 26)).chr}#{'q' * (i % 90)} malloc_bytes=#{i * (j + 1)}\n"
      end
      sent += writer.write(lines.join)
    end
    # All is read, but the end has not come.
    sleep 0.02 until File.read("/proc/#{pid}/io")[/^rchar: (\d+)/, 1].to_i >= sent
    peak = File.read("/proc/#{pid}/status")[/^VmHWM:\s+(\d+)/, 1].to_i
    writer.close
    answer = JSON.parse(out.read)
    Process.wait(pid)
    expect([answer["totals"]["requests"], answer["kinds"]]).to eq([1_000_000, 1_170])
    expect(peak).to be < 100_000
  end

  it "tells a real Puma's requests apart, by what they asked for" do
    skip PumaServer.missing if PumaServer.missing

    plain = File.join(Subprocess::ROOT, "spec", "fixtures", "web", "plain.ru")
    PumaServer.run(plain, env: { "TRACK" => "1" }, arguments: ["-t", "4:4"]) do |server|
      3.times { server.get("/bytes/5000000") }
      40.times { |i| server.get("/same/#{1_000 + i}/3") }
      server.wait("log") { server.lines.grep(%r{path=/(?:same|bytes)/}).size == 43 }
      File.write("puma.log", server.log)
    end
    answer = json("puma.log")
    rows = answer[:rows].to_h { |row| [row[:request], row] }
    expect(answer[:rows].first[:request]).to eq("GET /bytes/:id")
    expect(rows["GET /bytes/:id"]).to include(requests: 3, malloc_bytes: be_between(15_000_000, 15_400_000))
    expect(rows["GET /same/:id/:id"]).to include(requests: 40)
    logged = File.read("puma.log").scan(%r{path=/same/\S+ .*? malloc_bytes=(\d+) malloc_calls=(\d+)})
    bytes, calls = logged.transpose.map { |figures| figures.sum(&:to_i) }
    expect(rows["GET /same/:id/:id"]).to include(malloc_bytes: bytes, malloc_calls: calls)
    expect(answer[:answer]).to start_with("GET /bytes/:id allocated ")
  end

  it "refuses what makes no sense, with what to do" do
    File.write("none.log", "noise\nMEMORY[1]: time: 2026-01-01 12:00:00 +0000 rss: 1.0 MB\n")
    {
      [] => [2, "give a log to read, or - for standard input (memintro requests --help)"],
      %w[--by size a.log] => [2, "--by is \"size\"; it must be bytes, calls, count, p95, max or rss"],
      %w[--top 0 a.log] => [2, "--top is \"0\"; it must be a whole number of at least 1, or all"],
      %w[.] => [1, ".: is a folder; give the log files in it"],
      %w[gone.log] => [1, "gone.log: No such file or directory"],
      %w[none.log] => [1, "no request in 1 MEMORY line and 1 other line: their lines have a path, an action or a " \
                          "job, as Memintro::Middleware writes them"]
    }.each do |arguments, (code, message)|
      result = requests(*arguments)
      expect([result.status.exitstatus, result.stderr, result.stdout]).to eq([code, "memintro: #{message}\n", ""])
    end
    expect(requests("--help").must_succeed.stdout).to match(/--by <WHAT>.*--top <N>.*--json/m)
    expect(run_memintro("--help").stdout).to match(/^  requests +rank requests by the memory they allocate/)
  end
end
