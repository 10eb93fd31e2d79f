# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../../lib/memintro"

# `memintro snapshot`, `diff`, `iseqs` and `histogram`, on programs that they start and on files.
RSpec.describe "looking into a program" do
  include OtherUser

  EXAMPLE = File.join(Subprocess::ROOT, "examples", "big_module.rb")

  around { |example| Dir.mktmpdir("memintro-look") { |folder| @folder = folder and example.run } }

  def path(name) = File.join(@folder, name)

  def program(code, name: "program.rb")
    File.write(path(name), code)
    path(name)
  end

  def memintro(*arguments, **options) = OneRuby::Command.run(*arguments, **options)

  def saved(*options, code: "", **rest)
    memintro("snapshot", "-o", path("s.json"), *options, "--", RbConfig.ruby, program(code), **rest).must_succeed
    Memintro::Snapshot.load(path("s.json"))
  end

  # A word left on the stack may keep what was evaluated last, beside the methods: Ruby's collector is conservative.
  describe "10,000 methods that cannot be seen" do
    it "are named by memintro diff, with their number" do
      result = memintro("diff", "--format", "json", "-o", path("d.json"), "--", RbConfig.ruby, EXAMPLE).must_succeed
      expect(result.stdout).to eq("10000 methods, and the answer is 142\n")
      iseqs = JSON.parse(File.read(path("d.json"))).dig("sections", "iseqs")
      expect(iseqs.first).to include("name" => "generated.rb", "before" => 0)
      expect(iseqs.first["count_growth"]).to be_between(10_000, 10_001)
      expect(iseqs.first["growth"]).to be > 10_000 * 1_000
    end

    it "are the verdict on two snapshots that the program takes itself" do
      code = <<~RUBY
        GC.start
        Memintro.snapshot(:iseqs).save(ARGV[0])
        load #{EXAMPLE.inspect}
        GC.start
        Memintro.snapshot(:iseqs).save(ARGV[1])
      RUBY
      run_ruby(nil, path("a.json"), path("b.json"), code: code).must_succeed
      text = memintro("diff", path("a.json"), path("b.json")).must_succeed.stdout
      mixed_up = memintro("diff", path("b.json"), path("a.json")).must_succeed
      expect([mixed_up.stdout, mixed_up.stderr])
        .to eq([text, "memintro: #{path('a.json')} is older than #{path('b.json')}; comparing from the older one on\n"])
      verdict = /^Instruction sequences \+\d+\.\d MiB in ([\d,]+), (?:nearly )?all of generated\.rb\.$/
      expect(text[verdict, 1].delete(",").to_i).to be_within(20).of(10_000)
      expect(text).to match(/^RSS grew by \d+/)
      page = memintro("diff", "--format", "html", path("a.json"), path("b.json")).must_succeed.stdout
      expect(page).to start_with("<!DOCTYPE html>").and include("generated.rb")
      expect(memintro("iseqs", path("b.json")).stdout.lines[3]).to match(/9\d\.\d%  10,00[01]  generated\.rb$/)
      lines = memintro("iseqs", "--by", "location", "--top", "1", path("b.json")).stdout.lines
      expect(lines[3]).to match(/10,00[01]  generated\.rb:1$/)
    end

    it "are what memintro iseqs and memintro histogram show first" do
      iseqs = memintro("iseqs", "--", RbConfig.ruby, EXAMPLE).must_succeed
      expect(iseqs.stderr.lines[3]).to match(/9\d\.\d%  10,00[01]  generated\.rb$/)
      histogram = memintro("histogram", "--format", "json", "--top", "3", "--", RbConfig.ruby, EXAMPLE).must_succeed
      rows = JSON.parse(histogram.stderr).fetch("rows")
      expect(rows.size).to eq(3)
      expect(rows.first["name"]).to eq("imemo_iseq")
      expect(rows.first["count"]).to be > 10_000
    end
  end

  describe "memintro snapshot" do
    it "keeps everything by default, and nothing that costs with --parts none" do
      expect(saved.parts).to eq(Memintro::Snapshot::Parts::ALL - [:account])
      expect(saved("--parts", "none").parts).to eq([])
      expect(saved("--parts", "iseqs,types").parts).to eq(%i[types iseqs])
    end

    it "shows as many rows of each list as --top says, of a file and of a program" do
      whole = saved(code: "$kept = Array.new(100) { Object.new }")
      listed = ->(text) { text[/^  classes:\n((?: {4}\S.*\n)+)/, 1].lines.size }
      shown = ->(*options) { memintro("snapshot", *options, path("s.json")).must_succeed.stdout }
      expect(listed[shown["--top", "8"]]).to eq(8)
      expect(listed[shown["--top", "all"]]).to eq(whole.classes.size)
      expect(shown[]).to match(/^  classes: [^;\n]+; [^;\n]+; [^;\n]+$/)
      expect(shown["--top", "1"]).to match(/^  classes: [^;\n]+$/)
      full = 100.0 * whole.occupancy[:live_slots] / whole.occupancy[:slots]
      expect(shown[]).to match(/^  types: T_\w+ [\d,]+; T_\w+ [\d,]+; T_\w+ [\d,]+$/)
        .and match(/^  heap pages: \d+ pages, #{full.round}% of their slots live, \d+ nearly empty/)
      run = memintro("snapshot", "--top", "8", "--", RbConfig.ruby, path("program.rb")).must_succeed
      expect(listed[run.stderr]).to eq(8)
      expect(memintro("snapshot",
                      "--help").stdout).to include("rows of each list, or all; default 3 in text, all in json")
    end

    it "leaves the program's streams and exit status alone" do
      code = "puts $stdin.read; warn 'w'; exit 3"
      result = memintro("snapshot", "-o", path("s.json"), "--", RbConfig.ruby, program(code), stdin: "in")
      expect([result.stdout, result.stderr, result.status.exitstatus]).to eq(["in\n", "w\n", 3])
      expect(Memintro::Snapshot.load(path("s.json")).process[:program]).to eq(path("program.rb"))
    end

    it "has call sites with --track" do
      site = saved("--track", code: "$kept = Array.new(1_000) { 'x' * 5_000 }").call_sites.first
      expect([site.name, site.live_blocks]).to match([end_with("program.rb:1"), be_between(1_000, 1_100)])
    end

    it "gives each process a file of its own" do
      saved(code: "Process.wait(fork { exit }); system(#{RbConfig.ruby.inspect}, '-e', '')")
      expect(Dir.children(@folder).grep(/\As\.json/).map { |name| name[/\.(\d+)\z/] ? "s.json.PID" : name }.tally)
        .to eq("s.json" => 1, "s.json.PID" => 2)
    end

    it "is written to FILE by a program that clears its variables, and an earlier one stays where that is killed" do
      saved(code: "ENV.clear")
      before = File.binread(path("s.json"))
      memintro("snapshot", "-o", path("s.json"), "--", RbConfig.ruby, "-e", "Process.kill(:KILL, $$)")
      expect([Dir.children(@folder).grep(/\As\.json/), File.binread(path("s.json"))]).to eq([["s.json"], before])
    end

    it "ends when no process reads from the named pipe that it writes to" do
      File.mkfifo(path("pipe"))
      result = memintro("snapshot", "-o", path("pipe"), "--", RbConfig.ruby, "-e", "exit 3")
      expect([result.status.exitstatus, result.stderr]).to match([3, /no process reads from the named pipe/])
    end

    it "tells in one line what cannot be loaded in a program that has left memintro's folder, and leaves its status" do
      skip "only root may call chroot" unless Process.euid.zero?
      root = Dir.mktmpdir
      [%w[snapshot], %w[diff], ["run", "--report", "-"]].each do |words|
        code = "Dir.chroot(#{root.inspect}); Dir.chdir('/'); exit 3"
        result = memintro(*words, "--", RbConfig.ruby, "-e", code)
        expect(result.status.exitstatus).to eq(3), result.stderr
        expect(result.stderr).not_to match(/LoadError|\.rb:\d+:in/)
      end
    ensure
      FileUtils.rm_rf(root) if root
    end

    it "says in words that the current folder has been removed" do
      gone = Dir.mktmpdir
      command = [RbConfig.ruby, File.join(Subprocess::ROOT, "exe/memintro")]
      script = 'rmdir "$PWD"; exec "$@"'
      result = run_command("sh", "-c", script, "sh", *command, "snapshot", "-o", "x.json", "--", "true", chdir: gone)
      expect(result.status.exitstatus).to eq(1)
      expect(result.stderr).to match(/\Amemintro: the current folder has been removed: .*x\.json/)
    end

    it "does not have a later process of the same run write over the file of an earlier one" do
      ruby = "#{RbConfig.ruby.inspect}, '-e', ''"
      saved(code: "2.times { system(#{ruby}) }; exec(#{ruby})")
      expect(Dir.children(@folder).grep(/\As\.json/).map { |name| name[/\.(\d+)\z/] ? "s.json.PID" : name }.tally)
        .to eq("s.json" => 1, "s.json.PID" => 2)
      script = "#{RbConfig.ruby} -e 1; #{RbConfig.ruby} -e 2"
      memintro("snapshot", "-o", path("t.json"), "--", "sh", "-c", script).must_succeed
      expect(Dir.children(@folder).grep(/\At\.json/).map { |name| name.sub(/\d+\z/, "PID") })
        .to eq(["t.json.PID"] * 2)
    end

    it "takes one every so often, numbers them, and keeps the last" do
      code = "deadline = Time.now + 60; sleep 0.05 until File.exist?('#{path("s.5.json")}') || Time.now > deadline"
      options = %w[--every 0.1 --keep 3 --parts none]
      memintro("snapshot", *options, "-o", path("s.json"), "--", RbConfig.ruby,
               program(code)).must_succeed
      numbers = Dir.children(@folder).filter_map { |name| name[/\As\.(\d+)\.json\z/, 1]&.to_i }.sort
      expect(numbers.size).to eq(3)
      expect(numbers.last).to be >= 6
      expect(numbers).to eq((numbers.first..numbers.last).to_a)
      text = memintro("diff", *numbers.map { |number| path("s.#{number}.json") }).must_succeed.stdout
      expect(text).to include("3 snapshots")
      files = numbers.map { |number| path("s.#{number}.json") }
      page = memintro("diff", "--format", "html", *files).must_succeed.stdout
      expect(page).to start_with("<!DOCTYPE html>").and include("3 snapshots in", "<svg ")
    end

    it "shows a saved one" do
      saved
      expect(memintro("snapshot", path("s.json")).stdout).to start_with("#<Memintro::Snapshot ")
      expect(JSON.parse(memintro("snapshot", "--format", "json", path("s.json")).stdout)).to include("gc", "classes")
    end
  end

  # The program ends when somebody has looked at it three times, or after a minute.
  describe "with --every" do
    def looked_at(command, *options)
      code = <<~RUBY
        class Needle; end
        $needles = Array.new(1_000) { Needle.new }
        2_000.times { |i| eval("def grown_\#{i}; end", nil, "grown.rb", 1) }
        deadline = Time.now + 60
        sleep 0.05 until File.exist?(#{path("o.3.json").inspect}) || Time.now > deadline
      RUBY
      options += ["--every", "0.1", "--format", "json", "-o", path("o.%n.json")]
      memintro(command, *options, "--", RbConfig.ruby, program(code)).must_succeed
      numbers = Dir.children(@folder).filter_map { |name| name[/\Ao\.(\d+)\.json\z/, 1]&.to_i }.sort
      expect(numbers).to eq((1..numbers.last).to_a)
      # The last one was taken when it ended.
      expect(numbers.size).to be >= 4
      JSON.parse(File.read(path("o.#{numbers.last}.json")))
    end

    it "memintro iseqs looks so often, and at the end" do
      rows = looked_at("iseqs", "--by", "location").fetch("rows")
      expect(rows.find { |row| row["name"] == "grown.rb:1" }).to include("count" => be_between(2_000, 4_000))
    end

    it "memintro histogram looks so often, and at the end" do
      expect(looked_at("histogram").fetch("rows")).to include(include("name" => "Needle", "count" => 1_000))
    end

    it "memintro diff compares so often with the program's start, and at the end" do
      classes = looked_at("diff").fetch("sections").fetch("classes")
      expect(classes).to include(include("name" => "Needle", "before" => 0, "count_growth" => 1_000))
    end

    it "comes to the end of the look that it is at before the last one" do
      code = <<~RUBY
        $objects = Array.new(300_000) { Object.new }
        sleep 0.001 until File.exist?(#{path("o.2.json").inspect})
      RUBY
      options = ["--every", "0.001", "--format", "json", "-o", path("o.%n.json")]
      memintro("diff", *options, "--", RbConfig.ruby, program(code)).must_succeed
      names = Dir.children(@folder).grep(/o\./)
      expect(names.size).to be >= 3
      expect(names).to match_array((1..names.size).map { |number| "o.#{number}.json" })
    end

    it "all go to standard error, one after the other, where no file is given" do
      { "iseqs" => /^[\d,]+ instruction sequences, /, "histogram" => /^[\d,]+ objects/,
        "diff" => /^memintro .*: what changed in / }.each do |command, heading|
        code = <<~RUBY
          deadline = Time.now + 60
          sleep 0.05 until File.read("/proc/self/fd/2").scan(#{heading.inspect}).size >= 3 || Time.now > deadline
        RUBY
        result = memintro(command, "--every", "0.1", "--top", "1", "--", RbConfig.ruby, program(code)).must_succeed
        expect(result.stdout).to eq("")
        expect(result.stderr.scan(heading).size).to be >= 4, command
      end
    end
  end

  describe "memintro histogram" do
    it "shows what a saved snapshot has, as the snapshot itself does" do
      classes = saved("--parts", "classes", code: "class Needle; end; $n = Array.new(1_234) { Needle.new }").classes
      lines = memintro("histogram", "--top", "5", path("s.json")).must_succeed.stdout.lines.map(&:chomp)
      expect(lines.first).to start_with("#{Memintro::Units.count(classes.sum(&:count))} objects")
      expect(lines[3, 5].map { |line| line.split.last }).to eq(classes.first(5).map { |row| row.name.split.last })
      expect(memintro("histogram", "--top", "all", path("s.json")).stdout).to match(/ 1,234  Needle$/)
      rows = JSON.parse(memintro("histogram", "--format", "json", path("s.json")).must_succeed.stdout).fetch("rows")
      expect(rows.map { |row| row.values_at("name", "count", "bytes") })
        .to eq(classes.map { |row| [row.name, row.count, row.bytes] })
    end
  end

  describe "what goes wrong" do
    {
      %w[diff a.json] => [2, "give two files to compare"],
      %w[diff a.json b.json] => [1, "a.json cannot be read: No such file"],
      %w[iseqs] => [2, "give one FILE, or a program to run"],
      %w[histogram --top 0 x] => [2, "--top is \"0\"; it must be a number from 1, or all"],
      %w[diff --format pdf a b] => [2, "--format is \"pdf\"; it must be text or json or html"],
      %w[snapshot --every 0 -- true] => [2, "--every is \"0\""],
      %w[snapshot --parts all,x -- true] => [2, "--parts is \"all\""],
      %w[iseqs --every 3 x] => [2, "--every needs a program to run"],
      %w[snapshot -o /nowhere/x.json -- true] => [1, "there is no folder /nowhere"],
      %w[snapshot --] => [2, "no command to run"],
      %w[snapshot x.json -- true] => [2, "either a file or a program"],
      %w[iseqs -- /nowhere/x] => [127, "/nowhere/x: command not found"]
    }.each do |arguments, (code, message)|
      it "is said of: memintro #{arguments.join(' ')}" do
        result = memintro(*arguments)
        expect([result.status.exitstatus, result.stderr]).to match([code, include(message)])
      end
    end

    it "is a file with values of other types, in one line that names it" do
      saved("--parts", "none")
      wrong = path("w.json")
      File.write(wrong, File.read(path("s.json")).sub(/("memory":\{"rss_bytes":)\d+/, '\1"9"'))
      [["snapshot", wrong], ["rss", wrong], ["diff", path("s.json"), wrong]].each do |arguments|
        result = memintro(*arguments)
        message = "memintro: #{wrong} is a damaged snapshot of memintro: memory.rss_bytes is \"9\"; it must be "
        expect([result.status.exitstatus, result.stderr]).to match([1, start_with("#{message}an Integer from -")])
      end
    end

    it "is a folder or a file that somebody else may not write to" do
      File.chmod(0o755, @folder)
      File.write(path("kept.json"), "kept")
      File.chmod(0o644, path("kept.json"))
      result = run_memintro_as_nobody("snapshot", "-o", path("s.json"), "--", "true")
      expect([result.status.exitstatus, result.stderr])
        .to eq([1, "memintro: --output #{path('s.json')}: folder #{@folder} cannot be written to\n"])
      lines = run_ruby_as_nobody(<<~'RUBY', path("s.json"), path("kept.json")).stdout.lines.map(&:chomp)
        ARGV.each { |file| Memintro.snapshot.save(file) rescue puts("#{$!.class}: #{$!.message}") }
      RUBY
      expect(lines).to eq(%w[s.json kept.json].map { |file|
        "Memintro::SnapshotError: #{path(file)} cannot be written: Permission denied"
      })
      expect([Dir.children(@folder), File.read(path("kept.json"))]).to eq([["kept.json"], "kept"])
    end

    it "is reported once and does not disturb the program" do
      code = "require 'fileutils'; FileUtils.rm_rf(#{@folder.inspect} + '/gone'); puts 'done'"
      Dir.mkdir(path("gone"))
      result = memintro("iseqs", "-o", path("gone/x.txt"), "--", RbConfig.ruby, program(code)).must_succeed
      expect(result.stdout).to eq("done\n")
      expect(result.stderr).to match(/\Amemintro: no iseqs of process \d+: .*x\.txt cannot be written: No such file/)
      expect(result.stderr.lines.size).to eq(1)
    end

    it "is a part that the file does not have" do
      saved("--parts", "none")
      expect(memintro("iseqs", path("s.json")).stderr).to include("was taken without part :iseqs")
      expect(memintro("histogram", path("s.json")).stderr).to include("was taken without part :classes")
    end
  end

  %w[snapshot diff iseqs histogram].each do |command|
    it "says in its help that it shows no other programs than Ruby, and none that end by exit!: memintro #{command}" do
      expect(memintro(command, "--help").must_succeed.stdout.lines.last(3).join.tr("\n", " "))
        .to match(/If CMD starts no Ruby, or .* end by exit! .* nothing is shown .* The exit status is always CMD's/)
      [["sh", "-c", "exit 6"], [RbConfig.ruby, "-e", "exit!(6)"]].each do |program|
        result = memintro(command, "-o", path("none"), "--", *program)
        expect([result.status.exitstatus, result.stdout, result.stderr, File.exist?(path("none"))])
          .to eq([6, "", "", false])
      end
    end
  end

  it "is off with MEMINTRO_DISABLE=1" do
    env = { "MEMINTRO_DISABLE" => "1" }
    memintro("snapshot", "-o", path("s.json"), "--", RbConfig.ruby, "-e", "", env: env).must_succeed
    expect(File.exist?(path("s.json"))).to be(false)
  end

  describe "from unusual places" do
    def answers(code, *arguments) = run_ruby(nil, *arguments, code: code).must_succeed.stdout

    it "works in a trap handler, a finalizer, a thread, a forked child, and after a block that raised" do
      expect(answers(read_program("look/unusual_places.rb"), path("t.json")))
        .to eq("trap finalizer thread fork raised ")
    end

    it "walks the heap once for what the parts have in common, with the sums that each has alone" do
      expect(answers(read_program("look/walks.rb"))).to eq("true true true")
    end

    it "works while the collector is in the middle of its work" do
      expect(answers(<<~RUBY)).to eq("true")
        GC.start(immediate_mark: false, immediate_sweep: false)
        kept = Array.new(200_000) { |i| [i.to_s] }
        a = Memintro.snapshot(:classes, :iseqs)
        GC.start(full_mark: true, immediate_mark: false, immediate_sweep: false)
        print(Memintro.snapshot(:classes).classes.find { |row| row.name == "Array" }.count >= 200_000)
      RUBY
    end

    it "marks what a sample says, also when it was saved" do
      expect(answers(read_program("look/sampled.rb"), path("s.json")))
        .to include("malloc live ~", "note: Malloc was sampled", "same: true")
    end

    it "is refused in words in a Ractor, and what walks the heap while there are several" do
      said = answers(<<~RUBY)
        $VERBOSE = nil
        ractor = Ractor.new { begin Memintro.snapshot rescue Ractor.yield($!.message); Ractor.receive end }
        puts ractor.then { |one| one.respond_to?(:value) ? one.value : one.take }
        begin Memintro.snapshot(:classes) rescue puts($!.message) end
        puts "light: \#{Memintro.snapshot.gc[:count].between?(1, GC.count)}"
        puts "all: \#{(Memintro.snapshot(:all).missing.keys - [:types]).sort.join(" ")}"
        ractor.send(1)
      RUBY
      expect(said).to include("only in the main Ractor", "Ractors are alive", "light: true",
                              "all: classes internals iseqs occupancy")
    end

    # On every page of slots one object stays, and each is of another class.
    it "has its inspect below a datagram in a process with 20,000 classes, and what it holds" do
      sizes = answers(<<~RUBY).split.map { |size| Integer(size, 10) }
        kinds = Array.new(20_000) { Class.new }
        GC.disable
        kept = kinds.first(1_500).map.with_index { |kind, i| Object.const_set("Kind\#{i}", kind) && Array.new(450) { Object.new } && kind.new }
        GC.enable
        4.times { GC.start }
        s = Memintro.snapshot(:all)
        holders = s.occupancy[:holders]
        puts s.inspect.bytesize, (s - s).inspect.bytesize, holders.size
        puts [s.classes, s.types, s.internals, s.iseqs, s.occupancy, s.call_sites, s.gc, s.gc_heaps].map { |part| part.inspect.bytesize }
      RUBY
      expect(sizes.shift(2)).to all(be_between(45, 2048))
      expect(sizes.shift).to be > 1_000
      expect(sizes).to all(be < 20_000)
    end
  end
end
