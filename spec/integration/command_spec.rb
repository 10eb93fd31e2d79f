# frozen_string_literal: true

require_relative "../spec_helper"
require "fileutils"
require "tmpdir"

# `memintro run`, `env` and `report` on real programs: what the command does, and that the program does not notice.
RSpec.describe "the command" do
  let(:folder) { Dir.mktmpdir("memintro-command") }

  after { FileUtils.rm_rf(folder) }

  # Runs a Ruby program under `memintro run`; the program is a file named program.rb, so that its lines have a name.
  def run_program(code, *args, flags: [], **options)
    program = File.join(folder, "program.rb")
    File.write(program, code)
    run_memintro("run", *flags, "--", RbConfig.ruby, program, *args, way: :bare, **options)
  end

  def path(name) = File.join(folder, name)
  def reports(pattern = "r*") = Dir.glob(pattern, base: folder).sort
  def json(name) = JSON.parse(File.read(path(name)), symbolize_names: true)

  let(:keep) { <<~'RUBY' }
    require "fiddle"
    $kept = Array.new(100) do
      Fiddle.malloc(20_001)
    end
  RUBY

  # The hundred blocks, and the few that calling them takes.
  let(:kept_line) { /^ *1.9 MiB .* 10\d .*program.rb:3$/ }

  def kept(report) = report[:call_sites].find { |site| site[:name].end_with?("program.rb:3") }

  describe "run" do
    it "reports on standard error at exit, from the first allocation on, and leaves standard output alone" do
      result = run_program("#{keep}puts 'mine'")
      expect(result.stdout).to eq("mine\n")
      expect(result.stderr).to match(/\Amemintro \d.*, full mode, preloaded, /).and match(kept_line)
    end

    it "writes exact figures as JSON, its owner's alone, and nothing to the streams" do
      result = run_program(keep, flags: ["--format", "json", "--report", path("r.json")])
      expect([result.stdout, result.stderr]).to eq(["", ""])
      expect(kept(json("r.json"))).to include(allocations: be_between(100, 109), frees: 0, kind: "ruby",
                                              live_bytes: be_between(2_000_100, 2_000_100 + 4_000))
      expect(json("r.json")[:process]).to include(preloaded: true, tracking: true, mode: "full")
      expect([File.stat(path("r.json")).mode & 0o777, reports]).to eq([0o600, ["r.json"]])
    end

    {
      "exit 7" => 7, "abort" => 1, "raise 'oops'" => 1, "exit!(3)" => 3, "Process.kill(:TERM, $$); sleep" => :TERM,
      "Process.kill(:INT, $$); sleep" => :INT, "Process.kill(:KILL, $$); sleep" => :KILL,
      "trap(:USR1) { exit 9 }; Process.kill(:USR1, $$); sleep" => 9
    }.each do |code, ending|
      it "passes on how #{code} ends" do
        status = run_program(code, flags: ["--report", path("r.txt")]).status
        expect(status.signaled? ? Signal.signame(status.termsig).to_sym : status.exitstatus).to eq(ending)
      end
    end

    it "hands arguments, input and an ignored signal through" do
      File.write(path("program.rb"), "p ARGV, $stdin.read, trap(:HUP, 'DEFAULT')")
      command = [RbConfig.ruby, Subprocess::EXE, "run", "--", RbConfig.ruby, path("program.rb"), "a b", "--report", "x"]
      result = run_command("sh", "-c", "trap '' HUP; exec \"$@\"", "sh", *command, stdin: "in")
      expect(result.stdout).to eq("[\"a b\", \"--report\", \"x\"]\n\"in\"\n\"IGNORE\"\n")
    end

    it "answers as a shell does where there is no such command, or it cannot be run" do
      File.write(path("plain"), "")
      results = [%w[no-such-command-here], [path("plain")]].map { |command| run_memintro("run", "--", *command) }
      expect(results.map { |result| result.status.exitstatus }).to eq([127, 126])
      expect(results.map(&:stderr)).to eq(["memintro: no-such-command-here: command not found\n",
                                           "memintro: #{path('plain')}: cannot be run: Permission denied\n"])
    end

    it "leaves the command alone with MEMINTRO_DISABLE=1" do
      code = "puts ENV['LD_PRELOAD'].inspect, defined?(Memintro).inspect"
      result = run_program(code, env: { "MEMINTRO_DISABLE" => "1" })
      expect([result.stdout, result.stderr]).to eq(["nil\nnil\n", ""])
    end

    it "keeps what LD_PRELOAD and RUBYOPT held, behind its own" do
      result = run_program("puts ENV['LD_PRELOAD'], ENV['RUBYOPT'], $VERBOSE.inspect", flags: ["--report", path("r")],
                                                                                       env: { "RUBYOPT" => "-W0" })
      preload, rubyopt, verbose = result.stdout.lines.map(&:chomp)
      expect(preload).to eq(Subprocess::HOOK)
      expect(rubyopt).to eq("-r#{File.join(Subprocess::LIB, 'memintro/autorun.rb')} -W0")
      expect(verbose).to eq("nil")
    end

    it "works from a folder with a space in its name" do
      odd = path("a b")
      FileUtils.mkdir(odd)
      %w[exe lib].each { |name| FileUtils.cp_r(File.join(Subprocess::ROOT, name), odd) }
      File.write(path("program.rb"), keep)
      result = run_command(RbConfig.ruby, File.join(odd, "exe/memintro"), "run", "--format", "json", "--report",
                           path("r.json"), "--", RbConfig.ruby, path("program.rb"), env: { "TMPDIR" => folder })
      expect(result.stderr).to eq("")
      expect(kept(json("r.json"))[:frees]).to eq(0)
    end

    it "does not break a program whose report cannot be written, and says so once" do
      program = "require 'fileutils'; FileUtils.rm_rf(ARGV[0]) while Dir.exist?(ARGV[0]); sleep 0.3; puts 'done'"
      result = run_program(program, FileUtils.mkdir_p(path("gone"))[0],
                           flags: ["--report", path("gone/r.%p.txt"), "--every", "0.05"])
      expect([result.stdout, result.status.exitstatus]).to eq(["done\n", 0])
      expect(result.stderr).to match(/\Amemintro: no report of process \d+: No such file or directory.*\n\z/)
    end

    it "does not break a program when a variable has a wrong value" do
      result = run_program("puts 'done'", env: { "MEMINTRO_TOP" => "many" })
      expect([result.stdout, result.status.exitstatus]).to eq(["done\n", 0])
      expect(result.stderr).to match(/\Amemintro: not tracking process \d+: MEMINTRO_TOP is "many"; it must be .*\n\z/)
    end

    it "says so when another allocator stands in front of it, instead of reporting nothing" do
      jemalloc = Dir["/usr/lib/*/libjemalloc.so.2"].first or skip "no jemalloc here"
      variables = { "LD_PRELOAD" => "#{jemalloc} #{Subprocess::HOOK}", "MEMINTRO_MODE" => "full" }
      result = run_ruby(code: "puts 'done'", requires: ["memintro/autorun"], env: variables)
      expect([result.stdout, result.status.exitstatus]).to eq(["done\n", 0])
      expect(result.stderr).to match(/\Amemintro: not tracking process \d+: #{jemalloc} answers malloc before .*\n\z/)
    end

    it "never renames anything over a device" do
      before = File.stat(File::NULL)
      run_program("puts 1", flags: ["--report", File::NULL]).must_succeed
      expect([File.stat(File::NULL).ino, File.stat(File::NULL).chardev?]).to eq([before.ino, true])
    end

    it "replaces a link at the report's place instead of following it" do
      File.write(path("precious"), "precious")
      File.symlink(path("precious"), path("r.txt"))
      run_program("", flags: ["--report", path("r.txt")]).must_succeed
      expect([File.read(path("precious")), File.lstat(path("r.txt")).file?]).to eq(["precious", true])
    end

    it "lets the program require memintro, although its bundle has none, and has it once" do
      result = run_program("require 'memintro'; p Memintro.preloaded?, $LOADED_FEATURES.grep(/memintro\\.rb/).size",
                           flags: ["--report", path("r")])
      expect(result.stdout).to eq("true\n1\n")
    end

    # CPU time, for what else the machine does must not decide.
    it "adds at most 100 ms to a start" do
      time = lambda do |command|
        before = Process.times
        run_command(*command).must_succeed
        after = Process.times
        (after.cutime + after.cstime - before.cutime - before.cstime) * 1_000
      end
      plain = [RbConfig.ruby, "-e", ""]
      ours = [RbConfig.ruby, Subprocess::EXE, "run", "--report", path("r"), "--", *plain]
      # A busy machine also stretches processor time, by the same factor as that of Ruby's own start: 40 ms on an idle
      # one.
      plainly, tracked = Array.new(11) { [plain, ours].map(&time) }.transpose.map(&:min)
      expect(tracked - plainly).to be <= [100.0, plainly * 2.5].max
    end
  end

  describe "several processes" do
    it "have a file each, by %p" do
      run_program(<<~'RUBY', flags: ["--report", path("r.%p.txt")]).must_succeed
        pids = [fork {}, spawn("ruby", "-e", ""), fork { exit!(2) }]
        pids.each { |pid| Process.wait(pid) }
        IO.popen("-") { |io| io&.read }
        File.write(ARGV[0], pids.join(" ")) if ARGV[0]
      RUBY
      expect(reports.size).to eq(5)
      expect(reports.map { |name| name[/\d+/] }.uniq.size).to eq(5)
      expect(reports.count { |name| File.binread(path(name), 7) == "MEMINTR" }).to eq(2) # exit! and popen
      expect(reports.count { |name| File.binread(path(name), 9) == "memintro " }).to eq(3)
    end

    it "have a file each without %p: the first takes FILE, the others FILE.PID" do
      result = run_program("puts [fork {}, spawn('ruby', '-e', '')].each { |pid| Process.wait(pid) }",
                           flags: ["--report", path("r.txt")]).must_succeed
      expect(reports).to match_array(["r.txt", *result.stdout.split.map { |pid| "r.txt.#{pid}" }])
    end

    it "go on reporting after fork and daemon, each of itself" do
      run_program(<<~'RUBY', flags: ["--report", path("r.%p.json"), "--format", "json", "--every", "0.05"]).must_succeed
        Process.wait(fork { Process.daemon(true, true); $kept = "x" * 500_001; sleep 0.5; exit! })
        sleep 1.2
      RUBY
      most = lambda do
        dumps = reports("*.json").select { |name| File.binread(path(name), 7) == "MEMINTR" }
        shown = dumps.map { |name| run_memintro("report", "--format", "json", path(name)).must_succeed.stdout }
        sites = shown.flat_map { |text| JSON.parse(text)["call_sites"] }
        sites.select { |site| site["name"].end_with?("program.rb:1") }.map { |site| site["live_bytes"] }.max
      end
      live = nil
      # The daemon ends when it likes.
      300.times { (live = most.call) ? break : sleep(0.1) }
      expect(live).to be_between(500_001, 510_000)
    end

    it "that are not Ruby leave no trace on streams or files" do
      result = run_program("system('echo', 'hi'); system('ls > /dev/null')", flags: ["--report", path("r.txt")])
      expect([result.stdout, result.stderr, reports]).to eq(["hi\n", "", ["r.txt"]])
    end
  end

  describe "--every" do
    it "writes while the program runs, from one thread of a name of its own" do
      result = run_program(<<~'RUBY', path("r.txt"), flags: ["--report", path("r.txt"), "--every", "0.05"]).must_succeed
        2.times do
          sleep 0.01 until File.exist?(ARGV[0])
          File.unlink(ARGV[0])
        end
        sleep 0.01 until File.exist?(ARGV[0])
        puts File.read(ARGV[0]).lines.first, Thread.list.map { |thread| thread.name.inspect }
      RUBY
      expect(result.stdout).to match(/\Amemintro .*\nnil\n"memintro-report"\n\z/)
    end
  end

  describe "what a dying process leaves" do
    { "exit!(3)" => /left by exit!\(3\)/, "Process.kill(:SEGV, $$); sleep" => /killed by SIG(SEGV|ABRT)/,
      "Process.kill(:ABRT, $$); sleep" => /killed by SIGABRT/ }.each do |ending, told|
      it "by #{ending} is a raw dump that report shows" do
        run_program("#{keep}#{ending}", flags: ["--report", path("r")])
        expect([File.binread(path("r"), 7), File.stat(path("r")).mode & 0o777]).to eq(["MEMINTR", 0o600])
        text = run_memintro("report", "--top", "3", path("r")).must_succeed.stdout
        expect(text.lines.first).to match(told)
        expect(text).to match(kept_line)
        report = JSON.parse(run_memintro("report", "--format", "json", path("r")).stdout, symbolize_names: true)
        expect(kept(report)).to include(frees: 0, live_bytes: be_between(2_000_100, 2_004_100))
      end
    end

    it "is refused when it was cut short" do
      run_program("exit!", flags: ["--report", path("r")])
      whole = File.binread(path("r"))
      [8, 20, 60, whole.size / 2, whole.size - 1].each do |size|
        File.binwrite(path("r"), whole[0, size])
        result = run_memintro("report", path("r"))
        expect([size, result.status.exitstatus, result.stdout]).to eq([size, 1, ""])
        expect(result.stderr).to start_with("memintro: #{path('r')}: ")
      end
    end
  end

  describe "report" do
    it "shows a saved report in another order" do
      run_program(keep, flags: ["--report", path("r.json"), "--format", "json"]).must_succeed
      text = run_memintro("report", "--by", "allocations", "--top", "2", path("r.json")).must_succeed.stdout
      expect(text).to match(/^2 of \d+ call sites, by allocations:$/)
    end

    it "shows several files one after the other, and standard input" do
      run_program("#{keep}exit!(3)", flags: ["--report", path("r.dump")])
      run_program(keep, flags: ["--report", path("r.json"), "--format", "json"]).must_succeed
      dump, json = %w[r.dump r.json].map { |name| File.binread(path(name)) }
      texts = [dump, json].map { |text| run_memintro("report", "-", stdin: text).must_succeed.stdout }
      expect(texts).to match([/ left by exit!\(3\), .*#{kept_line}/m, /^memintro .*#{kept_line}/m])
      both = run_memintro("report", path("r.dump"), path("r.json")).must_succeed.stdout
      expect(both).to eq(texts.join("\n"))
      two = run_memintro("report", "--json", path("r.json"), "-", stdin: dump).must_succeed.stdout
      expect(two.scan(/^"totals":/).size).to eq(2)
    end

    it "shows the others where one of several cannot be read, and names it" do
      run_program(keep, flags: ["--report", path("r.json"), "--format", "json"]).must_succeed
      result = run_memintro("report", path("gone.json"), path("r.json"), "-", stdin: "MEMINTR\x01")
      expect([result.status.exitstatus, result.stdout.scan(/^memintro /).size]).to eq([1, 1])
      expect(result.stderr.lines).to match([/\Amemintro: .*gone.json: No such file/,
                                            /\Amemintro: standard input: it is not a/])
      mixed = run_memintro("report", path("r.json"), "123456")
      expect([mixed.status.exitstatus, mixed.stderr]).to match([2, /r.json is a file, and 123456 is not/])
    end

    it "takes a reader that closes the pipe as success" do
      run_program(keep, flags: ["--report", path("r.json"), "--format", "json"]).must_succeed
      command = "#{RbConfig.ruby} #{Subprocess::EXE} report --top all #{path('r.json')}"
      result = run_command("bash", "-c", "set -o pipefail; (#{command}; echo $? >&2) | true")
      expect(result.stderr).to eq("0\n")
    end
  end

  it "prints variables that work: env" do
    File.write(path("program.rb"), keep)
    variables = run_memintro("env", "--report", path("r %p.json"), "--format", "json").must_succeed.stdout.chomp
    run_command("sh", "-c", "#{variables} #{RbConfig.ruby} #{path('program.rb')}").must_succeed
    expect(kept(json(reports.fetch(0)))[:frees]).to eq(0)
  end

  it "finds everything in order on this machine: doctor" do
    result = run_memintro("doctor").must_succeed
    expect(result.stdout).to match(/^slots +\d+ patched/).and include("start in a running process: works\n")
      .and include("memintro run: works\n")
  end
end
