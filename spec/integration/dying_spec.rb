# frozen_string_literal: true

require "spec_helper"
require "memintro"
require "fileutils"
require "tmpdir"

# The raw dump of a process that is ending: on a signal stack of 8 KiB, with nothing to wait for, and without a trace in
# how it ends. And its file, in a folder where anybody may have put anything.
RSpec.describe "A process that dies and leaves a dump" do
  let(:folder) { Dir.mktmpdir("memintro-dying") }

  after { FileUtils.rm_rf(folder) }

  def path(name) = File.join(folder, name)
  def magic?(name) = File.binread(path(name), 7) == "MEMINTR"

  describe "with 8 KiB of signal stack" do
    def dying(how)
      run_command(program("dying.c"), how, way: :preloaded,
                                           env: { "MEMINTRO_SPEC_DUMP" => path("dump") }).must_succeed.json
    end

    # The signal, what the kernel says of it (si_code), and what stands beside it.
    segv, abrt, bus = %w[SEGV ABRT BUS].map { |name| Signal.list.fetch(name) }
    {
      "fault" => [segv, 1, { address: 0xdead0 }], "noncanonical" => [segv, 128, { address: 0 }],
      "kill" => [segv, 0, { sender: 1 }], "queue" => [bus, -1, { sender: 1, value: 4711 }],
      "abort" => [abrt, -6, { sender: 1 }], "chain" => [segv, 1, { address: 0xdead0 }], "overflow" => [segv, 1, {}]
    }.each do |how, (signal, code, beside)|
      next if how == "noncanonical" && RbConfig::CONFIG["host_cpu"] != "x86_64"

      it "leaves a whole dump at #{how}, and the signal that ends it says what the first one said, at the same place" do
        figures = dying(how)
        own = figures[:stops].reject { |stop| stop[:signal] == Signal.list.fetch("URG") }
        expect(own.size).to eq(2)
        expect(own.first).to include(signal: signal, code: code, **beside)
        # The registers in a core file.
        expect(own.last).to eq(own.first)
        expect(figures[:ended_by]).to eq(signal)
        dump = Memintro::Native::Report.read(File.binread(path("dump")))
        expect(dump.process).to include(pid: figures[:pid], signal: signal)
        expect(dump.rows.count { |site| site[2].start_with?("dying-") }).to be >= 200
        expect(Dir.children(folder)).to eq(["dump"])
      end
    end

    it "takes less than 3 KiB of it beside what the kernel takes itself" do
      figures = dying("fault")
      expect(figures[:used] - figures[:frame]).to be_between(200, 3072)
    end
  end

  describe "in a folder with things of others" do
    def leave(name, how: "segv")
      run_command(program("processes.c"), "leave", how, way: :preloaded,
                                                        env: { "MEMINTRO_SPEC_DUMP" => path(name) })
    end

    def mode_and_owner(name)
      found = File.lstat(path(name))
      [found.ftype, found.mode & 0o777, found.uid]
    end

    it "neither waits at a pipe beside its file, nor follows a link, nor writes into another's file there" do
      File.write(path("victim"), "mine")
      plants = { "pipe" => -> { File.mkfifo(path("dump.partial")) },
                 "link" => -> { File.symlink("victim", path("dump.partial")) },
                 "file" => lambda {
                   File.write(path("dump.partial"), "theirs")
                   File.chmod(0o666, path("dump.partial"))
                   File.chown(65_534, nil, path("dump.partial")) if Process.uid.zero?
                 } }
      plants.each do |name, plant|
        plant.call
        before = File.lstat(path("dump.partial"))
        expect(leave("dump").status.termsig).to eq(Signal.list.fetch("SEGV"))
        expect([name, magic?("dump"), mode_and_owner("dump")]).to eq([name, true, ["file", 0o600, Process.uid]])
        after = File.lstat(path("dump.partial"))
        expect([after.ino, after.size, after.ftype]).to eq([before.ino, before.size, before.ftype])
        expect(Dir.children(folder).sort).to eq(%w[dump dump.partial victim])
        FileUtils.rm([path("dump"), path("dump.partial")])
      end
      expect(File.read(path("victim"))).to eq("mine")
    end

    it "replaces a file or a link that stands at its name, and what the link leads to stays as it is" do
      File.write(path("victim"), "mine")
      File.symlink("victim", path("a"))
      File.write(path("b"), "theirs")
      File.chmod(0o666, path("b"))
      File.chown(65_534, nil, path("b")) if Process.uid.zero?
      %w[a b].each do |name|
        expect(leave(name).status.termsig).to eq(Signal.list.fetch("SEGV"))
        expect([magic?(name), mode_and_owner(name)]).to eq([true, ["file", 0o600, Process.uid]])
      end
      expect(File.read(path("victim"))).to eq("mine")
      expect(Dir.children(folder).sort).to eq(%w[a b victim])
    end

    it "leaves a pipe, a device and a folder that stand at its name alone, without a wait, by signal and by _exit" do
      File.mkfifo(path("pipe"))
      Dir.mkdir(path("sub"))
      device = system("mknod", path("null"), "c", "1", "3", err: File::NULL) ? ["null"] : []
      before = Dir.children(folder).sort
      ["pipe", "sub", *device].product(%w[segv _exit]).each do |name, how|
        kind = File.lstat(path(name)).ftype
        status = leave(name, how: how).status
        expect(how == "segv" ? status.termsig : status.exitstatus).to eq(how == "segv" ? Signal.list.fetch("SEGV") : 3)
        expect([File.lstat(path(name)).ftype, Dir.children(folder).sort]).to eq([kind, before])
      end
    end

    it "finds room for its file beside a name that is as long as names can be" do
      name = "d" * 255
      leave(name)
      expect([Dir.children(folder), magic?(name)]).to eq([[name], true])
    end
  end

  # Ruby's own crash report comes first, and ends in abort or, from 3.3 on, in raise.
  %w[SEGV BUS ILL ABRT FPE].each do |signal|
    it "as Ruby does by a SIG#{signal} that it sends itself, under `memintro run`" do
      code = "$kept = 'x' * 300_000; Process.kill(:#{signal}, $$); sleep 20"
      result = run_memintro("run", "--report", path("r"), "--", RbConfig.ruby, "-e", code)
      expect(result.status.signaled?).to be(true)
      expect([Dir.children(folder), magic?("r")]).to eq([["r"], true])
      report = JSON.parse(run_memintro("report", "--format", "json", path("r")).must_succeed.stdout)
      line = report["call_sites"].find { |site| site["name"] == "-e:1" }
      expect(line["live_bytes"]).to be >= 300_000
      expect(File.stat(path("r")).mode & 0o777).to eq(0o600)
    end
  end
end
