# frozen_string_literal: true

require_relative "../spec_helper"

# `memintro rss`, on processes and on commands.
RSpec.describe "memintro rss" do
  include OtherUser

  FIGURES_OF_RSS = %i[rss_bytes peak_rss_bytes pss_bytes uss_bytes swap_bytes vsize_bytes shared_bytes].freeze

  # A script that ends by itself and has 64 MiB.
  BIG = '$stdout.sync = true; text = "x" * (64 << 20); puts :ready; sleep ARGV[0].to_f; exit 7; text'

  def json_lines(text) = text.lines.map { |line| JSON.parse(line, symbolize_names: true) }

  # A process that ends when the second of the three is closed; the third waits for it.
  def ends_when_told
    reader, writer = IO.pipe
    pid = spawn(bare_env, "cat", in: reader, out: File::NULL)
    reader.close
    [pid, writer, Process.detach(pid)]
  end

  # The lines of a watch. The block gets what reads one more of them, and gives all so far.
  def watched(*arguments)
    reader, writer = IO.pipe
    flags = ["--watch", "0.2", "--format", "json"]
    watching = Thread.new { run_memintro("rss", *arguments, *flags, out: writer) }
    lines = []
    yield -> { lines << JSON.parse(reader.gets, symbolize_names: true) }
    watching.value.must_succeed
    writer.close
    lines + json_lines(reader.read)
  ensure
    [reader, writer].each(&:close)
  end

  it "shows a process, in text and as JSON" do
    pid = Process.pid
    text = run_memintro("rss", pid).must_succeed.stdout
    expect(text.lines.first).to eq("process #{pid}\n")
    titles = /RSS|peak RSS|PSS|private|shared|swap|address space/
    expect(text.lines.drop(1)).to all(match(/\A  (#{titles}) +\d+(\.\d)? [KMG]?i?B\n\z/))
    bytes = text.scan(/^  (RSS|private|shared) +([\d.]+) MiB$/).to_h.transform_values(&:to_f)
    expect(bytes["shared"]).to be_within(0.2).of(bytes["RSS"] - bytes["private"])
    found = run_memintro("rss", "--format", "json", pid).must_succeed.json
    expect(found.keys).to eq([:pid, :time, :children, *FIGURES_OF_RSS])
    expect(found).to include(pid: pid, children: false)
    expect(found[:rss_bytes]).to be_within(16 << 20).of(File.read("/proc/self/statm").split[1].to_i * 4096)
  end

  it "shows another user what everybody may know, and says what is not allowed" do
    result = run_memintro_as_nobody("rss", Process.pid.to_s).must_succeed
    expect(result.stdout).to match(/^  RSS +\d+\.\d MiB$/).and match(/^  address space +\d+\.\d [MG]iB$/)
    expect(result.stdout.lines.grep(/not allowed$/).map { |line| line.split.first }).to eq(%w[PSS private shared])
    expect(result.stderr).to eq("")
    json = run_memintro_as_nobody("rss", "--format", "json", Process.pid.to_s).must_succeed.json
    expect(json.keys).to eq([:pid, :time, :children, *FIGURES_OF_RSS])
    expect([json.select { |_, value| value.nil? }.keys, json[:rss_bytes]])
      .to match([%i[pss_bytes uss_bytes shared_bytes], be > 5 << 20])
  end

  it "adds up the children if asked to" do
    reader, writer = IO.pipe
    ruby = [RbConfig.ruby, "-e", BIG, "60"]
    shell = spawn(bare_env, "sh", "-c", '"$@" & wait', "sh", *ruby, out: writer, pgroup: true)
    Timeout.timeout(60) { reader.gets }
    alone, family = [[], ["--children"]].map { |flags| run_memintro("rss", "--format", "json", *flags, shell).json }
    expect([alone, family].map { |found| found.values_at(:pid, :children) }).to eq([[shell, false], [shell, true]])
    expect(alone.values_at(:rss_bytes, :pss_bytes)).to all(be < 16 << 20)
    expect(family.values_at(:rss_bytes, :pss_bytes, :uss_bytes)).to all(be_between(64 << 20, 128 << 20))
    expect(run_memintro("rss", "--children", shell).stdout).to start_with("process #{shell} and its children\n")
  ensure
    Process.kill(:KILL, -shell)
    Process.wait(shell)
    [reader, writer].each(&:close)
  end

  it "watches until the process ends" do
    pid, ending, waiter = ends_when_told
    lines = watched(pid, "--children") do |look|
      2.times { look.call }
      ending.close
    end
    expect(waiter.join(60)).to be(waiter)
    expect(lines.size).to be >= 2
    expect(lines.map { |line| line.values_at(:pid, :children) }.uniq).to eq([[pid, true]])
  end

  it "shows figures that fit each other of a command that grows" do
    growing = '40.times { |i| kept = Array.new(60 + i) { "x" * (1 << 20) }; kept.clear; GC.start }'
    result = run_memintro("rss", "--format", "json", "--watch", "0.01", "--", RbConfig.ruby, "-e", growing)
    found = json_lines(result.must_succeed.stderr).map do |line|
      line.values_at(:uss_bytes, :pss_bytes, :rss_bytes, :peak_rss_bytes)
    end
    expect(found.size).to be > 20
    expect(found.reject { |figures| figures.sort == figures }).to eq([])
  end

  it "runs a command, leaves its streams and status alone, and shows what was last seen" do
    result = run_memintro("rss", "--format", "json", "--", RbConfig.ruby, "-e", BIG, "2")
    expect([result.status.exitstatus, result.stdout]).to eq([7, "ready\n"])
    found = json_lines(result.stderr)
    expect(found.size).to eq(1)
    expect(found.first[:rss_bytes]).to be > 64 << 20
  end

  # Far less than the time between two looks, and garbage when it ends.
  SHORT = 'text = "x" * (200 << 20); text = nil; exit 3'

  it "knows the peak of a command that is gone before the next look, or before the first" do
    text = run_memintro("rss", "--", RbConfig.ruby, "-e", SHORT)
    expect([text.status.exitstatus, text.stdout]).to eq([3, ""])
    expect(text.stderr[/peak RSS\D*(\d+\.\d) MiB/, 1].to_f).to be_between(200, 280)
    json = run_memintro("rss", "--format", "json", "--", RbConfig.ruby, "-e", SHORT)
    found = json_lines(json.stderr)
    expect(found.map(&:keys)).to eq([[:pid, :time, :children, *FIGURES_OF_RSS]])
    expect(found.first[:peak_rss_bytes]).to be_between(200 << 20, 280 << 20)
    child = run_memintro("rss", "--", "sh", "-c", "#{RbConfig.ruby} -e '#{SHORT}'; exit 4")
    expect(child.status.exitstatus).to eq(4)
    expect(child.stderr[/peak RSS\D*(\d+\.\d) MiB/, 1].to_f).to be_between(200, 280)
  end

  it "says of a command too small and too short to be seen what its peak was at most" do
    # Until it becomes the command, the process is a copy of memintro's.
    result = run_memintro("rss", "--", "true")
    expect(result.must_succeed.stderr).to match(/peak RSS (was at most|) +\d+\.\d MiB/)
    json = run_memintro("rss", "--format", "json", "--", "true")
    expect(json_lines(json.must_succeed.stderr).map(&:keys)).to eq([[:pid, :time, :children, *FIGURES_OF_RSS]])
  end

  it "shows several processes, and names the one that is not there" do
    other = spawn(bare_env, "sleep", "60")
    result = run_memintro("rss", Process.pid, 4_194_304, other, Process.pid)
    expect(result.status.exitstatus).to eq(1)
    expect(result.stdout.lines.first.split(/\s{2,}/).drop(1).map(&:chomp))
      .to eq(["time", "RSS", "peak RSS", "PSS", "private", "shared", "swap address space", "process"])
    expect(result.stdout.lines.drop(1).map { |line| Integer(line.split.last, 10) }).to eq([Process.pid, other])
    expect(result.stderr).to match(/\Amemintro: there is no process 4194304/)
    lines = json_lines(run_memintro("rss", "--format", "json", other, Process.pid).must_succeed.stdout)
    expect(lines.map { |line| line[:pid] }).to eq([other, Process.pid])
  ensure
    Process.kill(:KILL, other)
    Process.wait(other)
  end

  it "watches several processes until the last one ends" do
    pids, endings, waiters = Array.new(2) { ends_when_told }.transpose
    seen = watched(*pids) do |look|
      2.times { look.call }
      endings.first.close
      expect(waiters.first.join(60)).to be(waiters.first)
      nil until look.call.last(2).map { |line| line[:pid] } == [pids.last] * 2
      endings.last.close
    end
    seen = seen.map { |line| line[:pid] }
    expect(waiters.last.join(60)).to be(waiters.last)
    expect([seen.first(2), seen.last(2)]).to eq([pids, [pids.last] * 2])
  end

  # Characters that affect a terminal: C0, DEL, C1, marks that change the direction of writing, separators of lines.
  ACTED_UPON = "\e]0;x\a\u007F\u009B2J\u0085\u061C\u200F\u202E\u2028\u2066"
  ESCAPED = "\\x1B]0;x\\x07\\x7F\\xC2\\x9B2J\\xC2\\x85\\xD8\\x9C\\xE2\\x80\\x8F" \
            "\\xE2\\x80\\xAE\\xE2\\x80\\xA8\\xE2\\x81\\xA6"

  it "escapes what a terminal acts upon in the names of files, in text and in JSON" do
    Dir.mktmpdir do |folder|
      file, plain = [ACTED_UPON, "s"].map { |name| File.join(folder, "#{name}.json") }
      run_ruby(nil, plain, code: "Memintro.snapshot.save(ARGV.first)").must_succeed
      FileUtils.cp(plain, file)
      title = run_memintro("rss", file).must_succeed.stdout.lines.first
      expect(title).to match(/\Aprocess \d+ at [^,]+Z, #{Regexp.escape("#{folder}/#{ESCAPED}")}\.json\n\z/o)
      rows = run_memintro("rss", plain, file).must_succeed.stdout
      expect(rows.lines.last).to end_with("B  #{folder}/#{ESCAPED}.json\n")
      json = run_memintro("rss", "--format", "json", file).must_succeed.stdout
      expect(json).to match(/\A[ -~]+\n\z/)
      expect(JSON.parse(json)["file"]).to eq(file)
      complaint = run_memintro("rss", "#{file}.none").stderr
      expect(complaint).to start_with("memintro: #{folder}/#{ESCAPED}.json.none cannot be read: ")
    end
  end

  it "escapes what a terminal acts upon in what somebody has written into a snapshot", :aggregate_failures do
    Dir.mktmpdir do |folder|
      file = File.join(folder, "s.json")
      run_ruby(nil, file, code: "Memintro.snapshot.save(ARGV.first)").must_succeed
      whole = JSON.parse(File.read(file))
      process = whole.fetch("process")
      [{ "version" => ACTED_UPON }, { "time" => ACTED_UPON }, { "memory" => { "rss_bytes" => ACTED_UPON } },
       { "memory" => { ACTED_UPON => 1 } }, { ACTED_UPON => ACTED_UPON }, { "process" => { ACTED_UPON => 1 } },
       *process.keys.map { |key| { "process" => process.merge(key => ACTED_UPON) } }].each do |change|
        File.write(file, JSON.generate(whole.merge(change)))
        [[], %w[--format json]].each do |flags|
          result = OneRuby::Command.run("rss", *flags, file)
          expect([0, 1]).to include(result.status.exitstatus)
          expect(result.stdout + result.stderr).to match(/\A[ -~\n]+\z/), "#{change}: #{result.inspect}"
        end
      end
    end
  end

  it "shows what a saved snapshot has" do
    Dir.mktmpdir do |folder|
      file = File.join(folder, "s.json")
      memory = run_ruby(nil, file, code: <<~RUBY).must_succeed.json
        require "json"
        puts JSON.generate(Memintro.snapshot(:pss).save(ARGV.first).memory.merge(pid: Process.pid))
      RUBY
      json = run_memintro("rss", "--format", "json", file).must_succeed.json
      shared = memory[:rss_bytes] - memory[:uss_bytes]
      expect(json.slice(:pid, *FIGURES_OF_RSS)).to eq({ **memory.slice(:pid, *FIGURES_OF_RSS), shared_bytes: shared })
      expect(json).to include(file: file, time: a_kind_of(Float))
      run_ruby(nil, file, code: "Memintro.snapshot.save(ARGV.first)").must_succeed
      text = run_memintro("rss", file).must_succeed.stdout
      expect(text.lines.first).to match(/\Aprocess \d+ at 20.*Z, #{file}\n\z/)
      expect(text).to match(/^  RSS +[\d.]+ MiB$/).and match(/^  PSS +not in it$/)
      result = run_memintro("rss", file, File.join(folder, "none.json"), Process.pid)
      expect([result.status.exitstatus, result.stdout.lines.map { |line| line.split.last }, result.stderr])
        .to match([1, ["process", file, Process.pid.to_s], /none.json cannot be read: No such file/])
    end
  end

  it "watches a command, with titles once" do
    result = run_memintro("rss", "--watch", "0.3", "--", RbConfig.ruby, "-e", BIG, "2")
    expect(result.status.exitstatus).to eq(7)
    expect(result.stderr.lines.first.split(/\s{2,}/).drop(1).map(&:chomp)).to include("time", "RSS", "PSS")
    expect(result.stderr.lines.drop(1)).to all(match(/\A *\d\d:\d\d:\d\d( +\S+ \S+){7}\n\z/))
    expect(result.stderr.lines.size).to be >= 3
  end

  it "passes a deadly signal's status on" do
    result = run_memintro("rss", "--", "sh", "-c", "sleep 0.5; kill -TERM $$")
    expect(result.status.exitstatus).to eq(143)
  end

  it "says what is wrong, and how it is right" do
    { %w[rss] => [2, /give a PID, a saved snapshot, or -- CMD/],
      %w[rss ruby a.rb] => [2, /"ruby" is neither a process id nor a file; .* rss -- ruby a.rb/],
      %w[rss 0] => [2, /neither a process id/],
      %w[rss --watch 1 s.json] => [2, /--watch is for running .* s.json is a/],
      %w[rss s.json] => [1, /s.json cannot be read: No such file/],
      %w[rss 1 --children s.json] => [2, /--children is for running processes/],
      %w[rss 9999999999] => [2, /pid is 9999999999; it must be/],
      %w[rss 4194304] => [1, /there is no process 4194304/], %w[rss --watch x 1] => [2, /--watch is "x"; it must be/],
      %w[rss --format xml 1] => [2, /--format is "xml"; it must be text or json/],
      %w[rss 1 -- true] => [2, /either a PID or -- CMD/],
      %w[rss -- /no/such] => [127, /command not found/] }.each do |arguments, (status, message)|
      result = run_memintro(*arguments)
      expect([result.status.exitstatus, result.stderr]).to match([status, message])
    end
  end
end
