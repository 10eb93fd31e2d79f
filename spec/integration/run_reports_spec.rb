# frozen_string_literal: true

require_relative "../spec_helper"
require "fileutils"
require "tmpdir"

# Where the reports of `memintro run` go, with several writers, processes and kinds of targets; and that a program ends
# as it would without.
RSpec.describe "reports of memintro run" do
  include OtherUser

  let(:folder) { Dir.mktmpdir("memintro-reports") }

  after { FileUtils.rm_rf(folder) }

  def path(name) = File.join(folder, name)
  def files = Dir.children(folder).sort
  def first_words(name) = File.binread(path(name), 9)

  def run(*flags, code: nil, command: [RbConfig.ruby, "-e", code], **options)
    run_memintro("run", *flags, "--", *command, chdir: folder, **options)
  end

  # The text format needs no file of memintro's. Code for other formats is loaded before the program begins, in full
  # mode.
  it "are written where a program has left memintro's folder; in sampled mode a raw dump, if it is no text" do
    skip "only root may call chroot" unless Process.euid.zero?
    code = "kept = Array.new(2_000) { |i| i.to_s * 500 }; Dir.chroot(#{folder.inspect}); Dir.chdir('/'); exit 3"
    made = [%w[full text], %w[sampled text], %w[full json], %w[sampled json]].map do |mode, format|
      file = "#{mode}.#{format}"
      result = run("--mode", mode, "--format", format, "--report", "/#{file}", code: code)
      expect(result.status.exitstatus).to eq(3)
      expect(files).to include(file), result.stderr
      [File.binread(path(file)), result.stderr]
    end
    expect(made.map { |bytes, _| bytes[0, 8] }).to eq(["memintro", "memintro", "{\"versio", "MEMINTR\x01".b])
    expect(made.first(3).map(&:last)).to eq(["", "", ""])
    expect(made[3][1]).to match(/\Amemintro: no report of process \d+: a file of memintro cannot be loaded .*chroot/)
    expect(made[3][1]).to end_with("`memintro report /sampled.json` shows what it left instead\n")
    shown = run_memintro("report", path("sampled.json")).must_succeed.stdout
    expect(shown).to include("-e:1")
  end

  describe "--every" do
    it "never spoils the last report, which is there when the process has ended" do
      code = "3_000.times { |n| eval('($kept ||= []) << %q(x) * 900', nil, %Q(many.rb), n + 1) }; sleep 0.1; $last = 1"
      results = Array.new(8) do |n|
        result = run("--every", "0.01", "--format", "json", "--report", "#{n}.json", code: code).must_succeed
        [result.stderr, JSON.parse(File.read(path("#{n}.json")))["call_sites"].size > 3_000]
      end
      expect(results.uniq).to eq([["", true]])
      expect(files).to eq(Array.new(8) { |n| "#{n}.json" })
    end

    it "is said to be impossible where there is no thread, and the last report is there" do
      File.write(path("none.rb"), "def Thread.new(*) = raise(ThreadError, 'no more')")
      result = run("--every", "1", "--report", "r.txt",
                   command: [RbConfig.ruby, "-r./none.rb", "-e", "puts 1"]).must_succeed
      expect([result.stdout, first_words("r.txt")]).to eq(["1\n", "memintro "])
      expect(result.stderr)
        .to match(/\Amemintro: process \d+ will report only at its end: memintro-report .*no more.*\n\z/)
    end

    it "leaves signals to the program" do
      result = run("--every", "0.05", "--report", "r.txt", code: <<~'RUBY').must_succeed
        sleep 0.01 until (ours = Thread.list.find { |thread| thread.name == "memintro-report" })&.native_thread_id
        status = "/proc/self/task/#{ours.native_thread_id}/status"
        100.times { break if File.read(status)[/^SigBlk:\s+(\h+)/, 1].hex[14] == 1; sleep 0.05 }
        puts File.read(status)[/^SigBlk:\s+(\h+)/, 1].hex[14]
      RUBY
      expect(result.stdout).to eq("1\n")
    end
  end

  describe "a program with a thread of memintro's" do
    flags = [%w[--every 0.2], %w[--every 60], %w[--stop-after 60], %w[--every 60 --stop-after 60]].freeze

    # The result of the code with each of these flags, and the report's first words. In parallel, because they only
    # wait.
    define_method(:with_each) do |code|
      runs = flags.map.with_index do |some, i|
        Thread.new { run(*some, "--report", "#{i}.txt", code: code) }
      end
      runs.map.with_index { |one, i| [one.value, first_words("#{i}.txt")] }
    end

    it "ends as Ruby's deadlocks do, with any flags that make one" do
      with_each("Queue.new.pop").each do |result, report|
        expect(result.stderr).to include("No live threads left. Deadlock? (fatal)")
        expect([result.status.exitstatus, report]).to eq([1, "memintro "])
      end
    end

    it "can join all threads there are, with any flags that make one" do
      code = "2.times { (Thread.list - [Thread.current]).each(&:join) }; puts 'joined'"
      with_each(code).each do |result, report|
        expect([result.status.exitstatus, result.stdout, result.stderr, report]).to eq([0, "joined\n", "", "memintro "])
      end
    end

    it "is not at a deadlock while its threads wake each other, nor while one sleeps, reads or waits for a child" do
      result = run("--every", "0.2", "--report", "r.txt", code: <<~'RUBY').must_succeed
        there, back = Queue.new, Queue.new
        Thread.new { loop { back << there.pop } }
        ends = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 4
        (there << 1; back.pop) until Process.clock_gettime(Process::CLOCK_MONOTONIC) > ends
        Thread.new { sleep 2; back << 1 }
        back.pop
        Thread.new { IO.popen("sleep 2", &:read); back << 1 }
        back.pop
        File.unlink("r.txt")
        600.times { break if File.exist?("r.txt"); sleep 0.05 }
        puts File.exist?("r.txt")
      RUBY
      expect([result.stdout, result.stderr]).to eq(["true\n", ""])
    end
  end

  describe "FILE without %p" do
    it "belongs to the first Ruby process, started in any way, in run and in env" do
      two = "#{RbConfig.ruby} -e 'puts $$'; #{RbConfig.ruby} -e 'puts $$'"
      printed = run_memintro("env", "--report", path("e.txt")).must_succeed.stdout.chomp
      [run("--report", "r.txt", command: ["sh", "-c", two]), run_command("sh", "-c", "export #{printed}; #{two}")]
        .zip(%w[r.txt e.txt]).each do |result, name|
          first, second = result.must_succeed.stdout.split
          expect(files.grep(/#{name}/)).to eq([name, "#{name}.#{second}"])
          expect(File.read(path(name))).to include("pid #{first}")
        end
    end

    it "is one's of those that run at the same time, and each has its own" do
      code = "sleep 0.01 until File.exist?('go')"
      siblings = "for n in 1 2 3 4; do #{RbConfig.ruby} -e \"#{code}\" & done; sleep 1; touch go; wait"
      run("--report", "r.txt", command: ["sh", "-c", siblings]).must_succeed
      expect(files.grep(/r.txt/)).to match(["r.txt", *[/\Ar.txt.\d+\z/] * 3])
      expect(files.grep(/r.txt/).map { |name| File.read(path(name))[/pid \d+/] }.uniq.size).to eq(4)
    end

    it "replaces the report of an earlier run, and stays the same process's that becomes another program" do
      2.times { run("--report", "r.txt", code: "exec(#{RbConfig.ruby.inspect}, '-e', 'exit!(0)')").must_succeed }
      expect([files, first_words("r.txt")]).to match([["r.txt"], start_with("MEMINTR")])
    end

    it "goes to the next process where the first was killed" do
      run("--report", "r.txt", command: ["sh", "-c", "#{RbConfig.ruby} -e 'Process.kill(:KILL, $$)'; " \
                                                     "#{RbConfig.ruby} -e ''"]).must_succeed
      expect([files, first_words("r.txt")]).to eq([["r.txt"], "memintro "])
    end

    it "stays as an earlier run left it until the report is complete, also where the process is killed" do
      File.write(path("r.txt"), "earlier")
      code = "print Dir.children('.').sort.inspect, File.read('r.txt'); $stdout.flush; Process.kill(:KILL, $$)"
      result = run("--report", "r.txt", code: code)
      expect([result.status.termsig, result.stdout])
        .to eq([Signal.list.fetch("KILL"), %(["r.txt", "r.txt.memintro-claim"]earlier)])
      expect(File.read(path("r.txt"))).to eq("earlier")
      expect(File.readlink(path("r.txt.memintro-claim"))).to match(/\Amemintro-report-of-process-\d+\z/)
      ["", "exit!(0)"].zip(["memintro ", "MEMINTR\x01"]).each do |code_of_next, words|
        run("--report", "r.txt", code: code_of_next).must_succeed
        expect([files, first_words("r.txt")]).to match([["r.txt"], start_with(words)])
      end
    end

    it "is not taken from a process that has claimed it, though the file itself is old" do
      File.write(path("r.txt"), "earlier")
      File.symlink("memintro-report-of-process-#{Process.pid}", path("r.txt.memintro-claim"))
      run("--report", "r.txt", code: "").must_succeed
      expect(files).to match(["r.txt", /\Ar.txt.\d+\z/, "r.txt.memintro-claim"])
      expect(File.read(path("r.txt"))).to eq("earlier")
    end

    it "leaves somebody's file of the claim's name alone" do
      File.write(path("r.txt.memintro-claim"), "somebody's")
      ["", "exit!(0)"].each { |code| run("--report", "r.txt", code: code).must_succeed }
      expect([files, File.read(path("r.txt.memintro-claim"))]).to eq([%w[r.txt r.txt.memintro-claim], "somebody's"])
    end

    it "stays the same process's that becomes another program after a report" do
      code = "sleep 0.01 until File.exist?('r.txt'); exec(#{RbConfig.ruby.inspect}, '-e', 'puts $$')"
      result = run("--every", "0.05", "--report", "r.txt", code: code).must_succeed
      expect([files, File.read(path("r.txt"))[/pid (\d+)/, 1]]).to eq([["r.txt"], result.stdout.chomp])
    end

    it "stays the parent's where C code forks" do
      result = run("--report", "r.txt", code: <<~'RUBY').must_succeed
        require "fiddle"
        child = Fiddle::Function.new(Fiddle.dlopen(nil)["fork"], [], Fiddle::TYPE_INT).call
        puts(child) || Process.wait(child) if child.positive?
      RUBY
      expect(files).to match_array(["r.txt", "r.txt.#{result.stdout.to_i}"])
    end

    it "is not there where no report could be written" do
      code = "Process.setrlimit(:NOFILE, 3)"
      result = run("--report", "r.txt", code: code).must_succeed
      expect(result.stderr).to match(/\Amemintro: no report of process \d+: Too many open files/)
      expect(files).to eq([])
    end

    it "stays where it was when the program changes its folder and its variables" do
      Dir.mkdir(path("elsewhere"))
      run("--report", "r.txt", code: "Dir.chdir('elsewhere'); ENV.clear").must_succeed
      expect([files, Dir.children(path("elsewhere"))]).to eq([%w[elsewhere r.txt], []])
    end
  end

  it "are one of a process and the daemon that it becomes" do
    { "d.txt" => /\Ad\.txt\z/, "e.%p.txt" => /\Ae\.\d+\.txt\z/ }.each do |name, wanted|
      run("--report", name, code: "Process.daemon(true); sleep 0.1").must_succeed
      # The daemon has no parent. It writes beside, then renames; its parent's file comes and goes.
      written = lambda do |file|
        wanted.match?(file) && first_words(file) == "memintro "
      rescue Errno::ENOENT
        false
      end
      600.times { files.any? && files.all?(&written) ? break : sleep(0.05) }
      expect(files).to match([wanted])
      FileUtils.rm(path(files.first))
    end
  end

  # A child that cannot exec ends by _exit: in its parent's memory, unless Ruby may change its user; then it forks.
  describe "of a program with children that cannot exec" do
    let(:code) { <<~'RUBY' }
      require "fiddle"
      blocks = Array.new(100)
      make = ->(range) { range.each { |i| blocks[i] = Fiddle.malloc(30_000) } }
      make.call(0...50)
      failed = [system("no-such-command-at-all"), system("/")]
      failed << (spawn("/") rescue $!.class) << (IO.popen(["/no/such/command"]) rescue $!.class)
      make.call(50...100)
      puts [Process.pid, Process.uid, *failed].inspect
      $stdout.flush
      exit!(3) if ARGV == ["exit!"]
    RUBY

    [["nobody", 65_534], ["same", Process.uid]].each do |user, uid|
      { "its end" => 0, "exit!" => 3 }.each do |ending, status|
        it "are the parent's alone, written at #{ending}, as #{user == 'same' ? 'the same user' : user}" do
          File.chmod(0o777, folder)
          command = ["run", "--report", path("r.%p"), "--format", "json", "--", RbConfig.ruby, "-e", code, ending]
          result = user == "nobody" ? run_memintro_as_nobody(*command) : run_memintro(*command)
          expect([result.stderr, result.status.exitstatus]).to eq(["", status])
          pid, *said = result.stdout.chomp.delete("[]").split(", ")
          expect(said).to eq([uid.to_s, "nil", "nil", "Errno::EACCES", "Errno::ENOENT"])
          expect(files).to eq(["r.#{pid}"])
          # Ruby writes a report; the hook leaves a raw dump.
          expect(first_words("r.#{pid}").start_with?("MEMINTR")).to be(ending == "exit!")
          report = JSON.parse(run_memintro("report", "--format", "json", path("r.#{pid}")).must_succeed.stdout)
          line = report["call_sites"].find { |site| site["name"] == "-e:3" }
          expect([report["process"]["pid"], line["live_blocks"]]).to match([pid.to_i, be_between(100, 120)])
          expect(line["live_bytes"]).to be_between(3_000_000, 3_029_999)
        end
      end
    end
  end

  describe "a named pipe" do
    before { File.mkfifo(path("pipe")) }

    it "takes the report where somebody reads" do
      reader = Thread.new { File.read(path("pipe")) }
      run("--report", "pipe", code: "").must_succeed
      expect(reader.join(60)&.value).to start_with("memintro ")
    end

    it "does not keep the program from ending where its output is not read" do
      result = run("--report", "pipe", code: "puts 1").must_succeed
      expect(result.stdout).to eq("1\n")
      expect(result.stderr)
        .to match(/\Amemintro: no report of process \d+: no process reads from the named pipe #{path('pipe')}\n\z/)
      expect(File.pipe?(path("pipe"))).to be(true)
    end
  end
end
