# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/listening"
require "tmpdir"
require "zlib"

# What goes wrong around dumps of the heap and questions to one: full disks, killed helpers, files that are no dumps.
RSpec.describe "dumps of the heap where something is wrong", :listening do
  around { |example| Dir.mktmpdir("memintro-hostile") { |folder| (@folder = folder) && example.run } }

  def path(name) = File.join(@folder, name)
  def heap(*arguments) = run_memintro("heap", *arguments)

  # Processes of this user whose program is the tool, with their parents.
  def tools
    Dir["/proc/[0-9]*/stat"].filter_map do |file|
      stat = File.read(file)
      [stat.to_i, stat[/\) \S (\d+)/, 1].to_i] if stat.include?("(memintro-tool)")
    rescue SystemCallError
      nil
    end.to_h
  end

  def children(pid)
    Dir["/proc/#{pid}/task/*/children"].flat_map { |list| File.read(list).split.map(&:to_i) }
  rescue SystemCallError
    []
  end

  # The tool that works for a program: a child of the copy, which is a child of one of its threads.
  def tool_of(program)
    copies = children(program.pid)
    tools.find { |_, parent| copies.include?(parent) }&.first
  end

  # The copy that the program has made, or the one that this copy has made: both are called memintro. So is the tool
  # until its program begins; the second copy is made later.
  def copy_of(program, which)
    first = children(program.pid).find { |pid| File.read("/proc/#{pid}/comm") == "memintro\n" }
    return first if which == :first || first.nil?
    return unless tools.value?(first)

    children(first).find { |pid| File.read("/proc/#{pid}/comm") == "memintro\n" }
  rescue SystemCallError
    nil
  end

  LARGE = "kept = Array.new(1_500_000) { |i| [i] }"

  it "leave nothing on a full disk, with any compression, and say so" do
    mounted = system("mount", "-t", "tmpfs", "-o", "size=256k", "none", @folder, err: File::NULL)
    skip "no small file system can be mounted here" unless mounted
    begin
      found = run_ruby(nil, @folder, code: <<~RUBY).must_succeed.json
        require "json"
        kept = Array.new(300_000) { |i| [i.to_s, rand] }
        said = ["", ".gz", ".zst"].map do |ending|
          Memintro.heap_dump(File.join(ARGV[0], "x" + ending), redact: false)
        rescue Memintro::HeapDumpError => e
          e.message
        end
        puts JSON.generate([said, Dir.children(ARGV[0])])
      RUBY
    ensure
      system("umount", @folder)
    end
    expect(found.first).to all(match(/x(\.gz|\.zst)? was not written, and nothing.* is left: the disk is full after/))
    expect(found.first.first).to include("or a name that ends in .zst")
    expect(found.last).to eq([])
  end

  it "are written by fewer threads where the user may have no more", skip: (Process.uid != 0 && "needs root") do
    File.chmod(0o777, @folder)
    found = run_ruby(nil, @folder, code: <<~RUBY).must_succeed.json
      require "json"
      kept = Array.new(100_000) { |i| [i] }
      Memintro.heap_dump(File.join(ARGV[0], "first"))
      # A user who may have this process, the copy and the tool, and no thread beside. Since 3.3, Ruby has one of its own.
      Process::UID.change_privilege(54_321)
      Process.setrlimit(:NPROC, Dir.children("/proc/self/task").size + 2)
      done = ["", ".gz", ".zst"].map { |ending| Memintro.heap_dump(File.join(ARGV[0], "x" + ending))[:objects] }
      puts JSON.generate(done)
    RUBY
    expect(found).to all(be > 100_000)
    expect(heap("histo", path("x.zst")).must_succeed.stdout).to match(/\A1\d\d,\d{3} objects take/)
  end

  # What a child says that has a limit: `dump` writes a file, `held` asks a question.
  def said_within_limits(*children)
    calls = children.map { |child| "-> { #{child} }" }
    program = read_program("heap_hostile/within_limits.rb")
    run_ruby(nil, @folder, code: "CHILDREN = -> { [#{calls.join(', ')}] }\n#{program}").must_succeed.json
  end

  it "say which limit is in the way, and never that nothing was found", :aggregate_failures do
    said, left = said_within_limits(
      "Process.setrlimit(:NOFILE, 14); dump.call", "Process.setrlimit(:NOFILE, 14); held.call",
      "Process.setrlimit(:AS, pages.call + 1_000_000); dump.call",
      "Process.setrlimit(:AS, pages.call + 60_000_000); held.call"
    )
    expect(said.first(2)).to all(match(/memintro-tool cannot be run: Too many open files/))
    expect(said.last(2)).to all(match(/got no memory for itself: a limit \(ulimit -v, -d\) is reached/))
    expect(left).to eq([])
    # A limit that the copy may raise does not count for it.
    said, left = said_within_limits("Process.setrlimit(:NOFILE, 14, 100); dump.call")
    expect([said, left]).to eq([["true"], ["x.zst"]])
  end

  # A program that is the first process of a container gets the children of whoever ends before them.
  it "leave no process to the program when the thread that asked ends at once" do
    found = run_ruby(nil, @folder, code: <<~RUBY).must_succeed.json
      require "fiddle"
      require "json"
      kept = Array.new(200_000) { |i| [i] }
      prctl = Fiddle::Function.new(Fiddle.dlopen(nil)["prctl"], [Fiddle::TYPE_INT] + ([Fiddle::TYPE_LONG] * 4),
                                   Fiddle::TYPE_INT)
      became = prctl.call(36, 1, 0, 0, 0) # PR_SET_CHILD_SUBREAPER
      ends = 0
      trap(:CHLD) { ends += 1 }
      20.times { Thread.new { Memintro.heap_dump(File.join(ARGV[0], "x")) }.join }
      deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 10
      children = -> { Dir["/proc/self/task/*/children"].map { |list| File.read(list) rescue "" }.join }
      sleep 0.01 until children.call.empty? || Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
      puts JSON.generate([became, ends, children.call])
    RUBY
    expect(found).to eq([0, 0, ""])
  end

  it "say that the tool was killed, leave nothing of the file, and work the next time" do
    program = start_program("Memintro.listen; #{LARGE}; puts :ready; sleep")
    asking = Thread.new { memintro("heap-dump", program.pid, "-o", path("killed.ndjson")) }
    tool = nil
    eventually { tool = tool_of(program) }
    Process.kill(:KILL, tool)
    result = asking.value
    # It may have been done already.
    unless result.status.success?
      expect(result.stderr).to match(/the tool that reads the heap ended \(signal (SIG)?KILL\)/)
      expect(Dir.children(@folder)).to eq([])
    end
    memintro("heap-dump", program.pid, "-o", path("next.ndjson.zst")).must_succeed
    expect(heap("histo", path("next.ndjson.zst")).must_succeed.stdout).to match(/\A1,[56]\d\d,\d{3} objects take/)
  end

  it "say that a copy was killed, leave nothing of the file, and work the next time" do
    program = start_program("Memintro.listen; #{LARGE}; puts :ready; sleep")
    %i[first second].each do |which|
      asking = Thread.new { memintro("heap-dump", program.pid, "-o", path("killed.ndjson")) }
      copy = nil
      eventually { copy = copy_of(program, which) || (asking.alive? ? nil : 0) }
      # It may have been done already.
      next if copy.zero?

      begin
        Process.kill(:KILL, copy)
      rescue Errno::ESRCH
        next
      end
      result = asking.value
      expect(result.stderr).to include("the kernel ended the copy of this process") unless result.status.success?
      expect(Dir.children(@folder)).to eq([]) unless result.status.success?
      FileUtils.rm_f(path("killed.ndjson"))
      eventually { tool_of(program).nil? && children(program.pid).empty? }
    end
    memintro("heap-dump", program.pid, "-o", path("next.ndjson.zst")).must_succeed
    expect(heap("histo", path("next.ndjson.zst")).must_succeed.stdout).to match(/\A1,[56]\d\d,\d{3} objects take/)
  end

  # Writes a dump for each name that comes, and says how that went.
  DUMPING = <<~RUBY
    kept = Array.new(400_000) { |i| [i] }
    $stdout.sync = true
    puts :ready
    while (name = $stdin.gets)
      begin
        puts "whole \#{Memintro.heap_dump(File.join(ARGV[0], name.chomp))[:objects]}"
      rescue Memintro::HeapDumpError => e
        puts e.message
      end
    end
  RUBY

  def start_dumping
    program = IO.popen([bare_env, RbConfig.ruby, "-I#{Subprocess::LIB}", "-rmemintro", "-e", DUMPING, @folder], "r+")
    program.gets
    program
  end

  # Processes that have the folder among their arguments: the program, its copies and the tool.
  def processes
    Dir["/proc/[0-9]*/cmdline"].filter_map do |file|
      file[/\d+/].to_i if File.read(file).include?(@folder)
    rescue SystemCallError
      nil
    end
  end

  # Whether there was one to kill.
  def kill(which, program)
    victim = case which
             when :process then program.pid
             when :tool then tool_of(program)
             else copy_of(program, which)
             end
    victim && Process.kill(:KILL, victim)
  rescue Errno::ESRCH
    nil
  end

  # Seconds that a whole dump takes, begun in a program that has loaded all for it.
  def seconds_of_a_dump
    program = start_dumping
    Array.new(3) do
      begun = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      program.puts("timed.zst")
      program.gets
      Process.clock_gettime(Process::CLOCK_MONOTONIC) - begun
    end.last
  ensure
    program&.close
    FileUtils.rm_f(path("timed.zst"))
  end

  # Whether the file is whole. `objects`: how many it has, if that is known.
  def check_whole(file, objects)
    said = JSON.parse(heap("histo", "--json", file).must_succeed.stdout)
    expect(said["truncated"]).to be(false)
    expect(said["objects"]).to eq(objects) if objects
  end

  it "leave nothing where the process, a copy or the tool is killed at any moment", :long do
    random = Random.new(RSpec.configuration.seed)
    program = nil
    kills = Hash.new(0)
    longest = 1.2 * seconds_of_a_dump
    200.times do |round|
      program ||= start_dumping
      name = "x#{round}#{['', '.gz', '.zst'][round % 3]}"
      program.puts(name)
      sleep(random.rand * longest)
      which = %i[process first second tool][round / 3 % 4]
      kills[which] += 1 if kill(which, program)
      said = program.gets
      if which == :process
        program.close
        program = nil
      else
        expect(said).to match(/\Awhole|the tool that reads the heap ended|the kernel ended the copy|dump broke off/)
      end
      eventually { (processes - [program&.pid]).empty? }
      files = Dir.children(@folder)
      expect(files).to eq([]).or eq([name])
      expect(files).to eq([name]) if said&.start_with?("whole")
      files.each { |file| check_whole(path(file), said&.slice(/\d+/)&.to_i) }
      FileUtils.rm_f(path(name))
    end
    expect(kills.values_at(:process, :first, :second, :tool)).to all(be > 20)
  ensure
    program&.close
  end

  it "end with the command that asked, and the process answers the next one" do
    program = start_program("Memintro.listen; #{LARGE}; puts :ready; sleep")
    dump = ["heap-dump", program.pid, "-o", path("x.ndjson.zst")]
    [["holders", program.pid, "--class", "Array"], dump].each do |words|
      pid = spawn(listening_env, RbConfig.ruby, Subprocess::EXE, *words.map(&:to_s), out: File::NULL, err: File::NULL)
      eventually { tool_of(program) }
      Process.kill(:KILL, pid)
      Process.wait(pid)
      eventually { tool_of(program).nil? }
    end
    said = memintro("holders", program.pid, "--class", "Array", "-n", "1").must_succeed.stdout
    expect(said).to match(/\A1,500,\d{3} of 1,50\d,\d{3} Array \(57\.\d of \d\d\.\d MiB\): /)
    expect(program).to be_alive
  end

  # Reading $FILENAME opens the first of the program's arguments, and takes it out of them.
  it "leave the arguments of the program and its standard input alone" do
    File.write(path("input"), "first\nsecond\n")
    found = run_ruby(nil, path("input"), code: <<~RUBY).must_succeed.json
      require "json"
      Memintro.heap_dump(ARGV[0] + ".ndjson")
      Memintro.roots
      Memintro.holders(String)
      puts JSON.generate([ARGV.map { |name| File.basename(name) }, ARGF.read])
    RUBY
    expect(found).to eq([["input"], "first\nsecond\n"])
  end

  it "are refused in words where a file is none, and read as far as they go where it is broken" do
    line = %({"address":"0x10", "type":"STRING", "memsize":40}\n)
    { "empty" => "", "zeros" => "\0" * 3_000_000, "escape\e[31m" => "\e[2Jno dump", "deep" => "#{'{"a":[' * 100_000}\n",
      "half.gz" => Zlib.gzip(line * 1000)[0, 60], "text.zst" => "\x28\xb5\x2f\xfdxxxxxxxx" }.each do |name, bytes|
      File.binwrite(path(name), bytes)
      %w[histo top duplicates].each do |question|
        said = heap(question, path(name))
        expect([name, said.status.exitstatus]).to eq([name, 1])
        expect(said.stderr).to match(/\Amemintro: .*\S/)
        expect(said.stdout + said.stderr).not_to match(/\e|panicked/)
      end
    end
    # Of two dumps, each has its line; a line end in a name begins none.
    File.write(path("two\nlines"), "x\n")
    said = heap("diff", path("two\nlines"), path("empty")).stderr.lines
    expect(said.first).to match(/two\\x0Alines: byte 0: a line does not begin with \{/)
    # Each question to a dump of which one line in two is broken.
    File.write(path("mixed"), Array.new(200) { |i| i.odd? ? line.sub("10", (i * 8).to_s(16)) : "{\"address\":\n" }.join)
    mixed = heap("histo", "--json", path("mixed"))
    expect(JSON.parse(mixed.stdout)).to include("objects" => 100, "truncated" => true)
    expect(mixed.stderr).to match(/byte \d+: .*; 100 lines left out; 100 objects could be read/)
    File.mkfifo(path("fifo"))
    reading = Thread.new { heap("histo", path("fifo")) }
    File.write(path("fifo"), line)
    expect(reading.value.stdout).to start_with("1 object takes 40 B")
  end

  it "do not lose a dump to the page that is made of it" do
    File.write(path("a.ndjson"), %({"address":"0x10", "type":"STRING", "memsize":40}\n))
    File.symlink("a.ndjson", path("link"))
    said = heap("html", path("a.ndjson"), "-o", path("link"))
    expect([said.status.exitstatus, said.stderr]).to match([1, /link is the dump itself.*give another file with -o/])
    expect(File.read(path("a.ndjson"))).to start_with("{\"address\"")
    expect(heap("diff", "-", "-").stderr).to include("standard input (-) can be only one of the dumps")
  end
end
