# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/hostile_listener"
require_relative "../support/listening"
require_relative "../support/other_user"
require "etc"
require "socket"

# Whom `memintro COMMAND PID` asks, and what it makes of a machine without /proc, of other users, of workers that end.
RSpec.describe "whom the command asks", :listening do
  SLEEPER = "Memintro.listen; puts :ready; sleep"

  def path_of(pid) = File.join(socket_folder, "#{pid}.sock")

  # The output of a command that must not fail.
  def said(*arguments) = memintro(*arguments).must_succeed.stdout

  # The error of a command that must fail.
  def complaint(*arguments, **options)
    result = memintro(*arguments, **options)
    expect([result.status.exitstatus, result.stdout]).to eq([1, ""]), result.inspect
    result.stderr
  end

  describe "where /proc is missing" do
    # The command, with nothing in /proc.
    def without_proc(*arguments)
      skip "only root can mount" unless Process.uid.zero?
      command = ["unshare", "--mount", "sh", "-c", "mount -t tmpfs tmpfs /proc || exit 99; exec \"$@\"", "sh",
                 RbConfig.ruby, Subprocess::EXE, *arguments.map(&:to_s)]
      result = run_command(*command, env: listening_env)
      skip "mounts are refused here: #{result.stderr}" if result.status.exitstatus == 99 || result.stderr[/^unshare:/]
      result
    end

    it "takes no live process for dead, leaves its socket alone, and says what is missing" do
      pid = start_program("Memintro.listen(name: 'web'); puts :ready; fork { sleep }; sleep").pid
      worker = eventually { (sockets.map(&:to_i) - [pid]).first }
      silent = start_program("puts :ready; sleep").pid
      listed = without_proc("ps").must_succeed.stdout
      expect(sockets.map(&:to_i)).to contain_exactly(pid, worker)
      expect(listed).to match(/^ *#{pid} +\d+ +[\d.]+ MiB +off +\S+ +web +-e$/)
      expect(listed).to match(/^ *#{worker} +#{pid} +[\d.]+ MiB +off +\S+ +web +-e$/)
      expect(listed).to match(%r{^note: /proc does not exist here, so memintro cannot see .* other processes})
      expect(without_proc("mark", pid).must_succeed.stdout).to start_with("process #{pid} (-e) counts growth from now")
      expect(without_proc("mark", pid, "--workers").must_succeed.stdout.lines.size).to eq(2)
      expect(without_proc("gc", "web", "--workers").must_succeed.stdout.lines.size).to eq(2)
      absent = without_proc("mark", silent)
      expect([absent.status.exitstatus, absent.stdout]).to eq([1, ""])
      expect(absent.stderr).to start_with("memintro: process #{silent} (?) does not listen; ")
        .and include("; /proc does not exist here")
      expect(without_proc("mark", 4_194_303).stderr).to eq("memintro: there is no process 4194303\n")
    end

    it "says of one that does not answer that it is there, and removes what a killed one left" do
      program = start_program(SLEEPER)
      program.kill(:STOP)
      result = without_proc("mark", program.pid, "--timeout", "0.5")
      expect([result.status.exitstatus, result.stderr])
        .to match([1, /process #{program.pid} did not answer within 0.5 s; the cause is unknown: .proc/])
      expect(without_proc("ps").must_succeed.stdout).to match(/^ *#{program.pid} .* \?  /)
      expect(sockets).to eq(["#{program.pid}.sock"])
      program.kill
      program.wait
      expect(without_proc("ps").must_succeed.stdout).to start_with("No process listens; start one with MEMINTRO_LISTEN")
      expect(sockets).to eq([])
    end

    it "answers from a process that has none itself" do
      skip "only root can mount" unless Process.uid.zero?
      code = "Memintro.listen(name: 'blind'); puts :ready; sleep"
      out, theirs = IO.pipe
      pid = spawn(listening_env, "unshare", "--mount", "sh", "-c", "mount -t tmpfs tmpfs /proc && exec \"$@\"", "sh",
                  RbConfig.ruby, "-I#{Subprocess::LIB}", "-rmemintro", "-e", "$stdout.sync = true; #{code}",
                  out: theirs, err: File::NULL)
      theirs.close
      ready = Timeout.timeout(60) { out.gets }
      skip "mounts are refused here" if ready.nil?
      expect(said("gc", "blind")).to match(/live objects, RSS \? -> \?$/)
      expect(JSON.parse(said("ps", "--json"))).to include("pid" => pid, "rss_bytes" => nil)
    ensure
      if pid
        Process.kill(:KILL, pid)
        Process.wait(pid)
      end
    end
  end

  describe "with workers that end meanwhile" do
    # A listener that has ended when it is asked its second question.
    def fleeting(program, path)
      honest = HostileListener.answer(HostileListener.honest(program.pid)["info"])
      HostileListener.new(path) do |command, socket|
        next socket.write(honest) if command == "info"

        program.kill
        program.wait
      end
    end

    it "leaves them out with a word, and is a success" do
      pid = start_program("Memintro.listen(name: 'shop'); puts :ready, spawn('sleep', '100'); sleep")
      child = pid.line.to_i
      worker = Listening::Program.new(pid: child)
      # It is the master's child, who waits for it.
      allow(worker).to receive(:wait) { eventually { File.read("/proc/#{child}/stat")[/\) Z/] } }
      listener = nil
      [%w[mark], %w[top --json], %w[histogram --top 1]].each do |command, *flags|
        listener ||= fleeting(worker, path_of(child))
        result = memintro(command, *flags, pid.pid, "--workers")
        expect([result.status.exitstatus, result.stderr])
          .to eq([0, "memintro: process #{child} has ended meanwhile, and is left out\n"]), result.inspect
        expect(result.stdout).not_to eq("")
      end
    ensure
      listener&.close
    end

    it "fails where one does not answer that is there, or was named itself" do
      master = start_program("Memintro.listen(name: 'shop'); puts :ready, spawn('sleep', '100'); sleep")
      child = master.line.to_i
      honest = HostileListener.answer(HostileListener.honest(child)["info"])
      listener = HostileListener.new(path_of(child)) { |command, socket| socket.write(honest) if command == "info" }
      result = memintro("mark", master.pid, "--workers")
      expect([result.status.exitstatus, result.stderr])
        .to eq([1, "memintro: process #{child} ended, or stopped listening, before it had answered\n"])
      Process.kill(:KILL, child)
      eventually { File.read("/proc/#{child}/stat")[/\) Z/] }
      result = memintro("mark", master.pid, child, "--workers")
      expect(result.status.exitstatus).to eq(1)
    ensure
      listener&.close
    end
  end

  describe "as root" do
    before do
      able = Process.uid.zero? && system("which setpriv", out: File::NULL)
      skip "only root can try another user" unless able
    end

    # A process of user 65534 that listens in a folder of its own, which no environment names.
    def start_as_nobody
      folder = "/tmp/memintro-65534"
      skip "#{folder} is somebody else's" if File.exist?(folder) && File.stat(folder).uid != 65_534
      out, theirs = IO.pipe
      env = listening_env("MEMINTRO_SOCKET_FOLDER" => nil, "HOME" => "/tmp")
      code = "$stdout.sync = true; Memintro.listen(name: 'theirs'); puts :ready; sleep"
      pid = spawn(env, *OtherUser::NOBODY, RbConfig.ruby, "-I#{Subprocess::LIB}", "-rmemintro", "-e", code,
                  out: theirs, err: File::NULL)
      theirs.close
      skip "this checkout is not readable to others" unless Timeout.timeout(60) { out.gets } == "ready\n"
      yield pid
    ensure
      if pid
        Process.kill(:KILL, pid)
        Process.wait(pid)
        File.unlink("#{folder}/#{pid}.sock") if File.exist?("#{folder}/#{pid}.sock")
      end
    end

    # Without a folder that is named by the environment.
    def as_root(*arguments) = memintro(*arguments, env: { "MEMINTRO_SOCKET_FOLDER" => nil })

    it "looks into other users' folders only where it was asked to" do
      start_as_nobody do |pid|
        expect(as_root("ps").must_succeed.stdout).not_to include("theirs")
        expect(as_root("mark", "theirs").stderr).not_to include("#{pid} (")
        result = as_root("mark", pid)
        user = Etc.getpwuid(65_534).name
        expect([result.status.exitstatus, result.stderr])
          .to eq([1, "memintro: process #{pid} belongs to user #{user}; as root, add --user #{user}\n"])
        ["65534", user, "all"].each do |who|
          expect(as_root("ps", "--user", who).must_succeed.stdout).to match(/^ *#{pid} .* theirs +-e$/)
          [pid, "theirs"].each do |word|
            marked = as_root("mark", "--user", who, word).must_succeed.stdout
            expect(marked).to start_with("process #{pid} (-e) counts")
          end
        end
        expect(as_root("histogram", "--user", user, "--top", "1", pid).must_succeed.stdout)
          .to match(/  (?:String|imemo_iseq)$/)
      end
      expect(as_root("ps", "--user", "no-such-user").stderr)
        .to match(/\Amemintro: .*--user is "no-such-user"; there is no such user here\. It must be a user's name or/)
    end

    it "asks no process of another user than the folder's" do
      path = path_of(4_194_001)
      code = "require 'socket'; s = UNIXServer.new(ARGV[0]); puts :ready; $stdout.flush; c = s.accept; " \
             "p c.read_nonblock(1, exception: false), IO.select([c], nil, nil, 3) && c.read"
      File.chmod(0o777, socket_folder)
      out, theirs = IO.pipe
      pid = spawn(*OtherUser::NOBODY, RbConfig.ruby, "-e", code, path, out: theirs)
      theirs.close
      out.gets
      File.chmod(0o700, socket_folder)
      listed = said("ps")
      expect(listed).to match(/^ *4194001 .* \? +\? +- /)
      expect(listed)
        .to include("note: user 65534 listens at #{path}, which belongs to user 0; nothing was sent\n")
      # Not a byte was sent.
      expect(out.read.lines.last).to eq("\"\"\n")
      Process.wait(pid)
    end
  end

  it "is root's alone to look for other users' processes" do
    skip "only root can become another user" unless Process.uid.zero?
    result = run_command(*OtherUser::NOBODY, RbConfig.ruby, Subprocess::EXE, "ps", "--user", "root", env: listening_env)
    skip "this checkout is not readable to others" if /LoadError|Permission denied @ rb_sysopen/.match?(result.stderr)
    expect([result.status.exitstatus, result.stderr])
      .to eq([2, "memintro: --user root: only root may look into other users' folders; as that user: sudo -u root " \
                 "memintro …\n"])
  end

  it "offers rbtrace where the process has it, and only there" do
    silent = start_program("puts :ready; sleep")
    expect(complaint("start", silent.pid)).not_to include("rbtrace")
    library = File.join(socket_folder, "rbtrace.so")
    FileUtils.cp(Subprocess::HOOK, library)
    traced = start_program("require 'fiddle'; Fiddle.dlopen('#{library}'); puts :ready; sleep", requires: [])
    expect(complaint("start", traced.pid))
      .to end_with("does not listen; it has rbtrace loaded, which can have it listen: rbtrace -p #{traced.pid} -e " \
                   "'require \"memintro\"; Memintro.listen'\n")
  end

  it "describes every option of every command" do
    require "memintro/cli"
    Memintro::CLI.names.each do |name|
      help = said(name, "--help")
      expect(help).not_to include("print-target")
      # A description stands in a column of its own, beside or below.
      lines = help.lines(chomp: true)
      bare = lines.each_with_index.select do |line, at|
        line.match?(/\A {4,}-/) && !line.match?(/\A {4,}-.*\S {2,}\S/) && !lines[at + 1].to_s.match?(/\A {30,}\S/)
      end
      expect(bare.map(&:first)).to eq([]), name
    end
  end
end
