# frozen_string_literal: true

require_relative "../spec_helper"
require "etc"
require "memintro"

# Memintro.rss and its relatives, against what the kernel's files say at the same time.
RSpec.describe "Memintro.rss and its relatives" do
  MIB = 1024 * 1024

  # Answers of a child that ran the code; `status` and `rollup` read the kernel's files there, in bytes.
  def figures(code, **options)
    helpers = <<~'RUBY'
      require "json"
      def kernel(file, field) = File.read("/proc/self/#{file}")[/^#{field}:\s+(\d+) kB/, 1].to_i * 1024
      def put(**answer) = puts(JSON.generate(answer))
    RUBY
    run_ruby(code: helpers + code, **options).must_succeed.json
  end

  it "says what the kernel says" do
    answer = figures(<<~RUBY)
      Memintro.pss # loads what the question itself needs
      names = { rss: %w[status VmRSS], peak_rss: %w[status VmHWM], vsize: %w[status VmSize], swap: %w[status VmSwap],
                pss: %w[smaps_rollup Pss] }
      kernel("smaps_rollup", "Pss")
      put(**names.to_h { |name, where| [name, [Memintro.public_send(name), kernel(*where)]] },
          uss: [Memintro.uss, kernel("smaps_rollup", "Private_Clean") + kernel("smaps_rollup", "Private_Dirty")])
    RUBY
    answer.each { |name, (ours, kernels)| expect(ours).to be_within(MIB).of(kernels), "#{name}: #{ours}, #{kernels}" }
    expect(answer[:rss][0]).to be > 5 * MIB
    expect(answer[:vsize][0]).to be > answer[:rss][0]
    expect(answer[:pss][0]).to be_between(answer[:uss][0], answer[:rss][0])
  end

  it "sees 64 MiB come and go, and remembers the peak" do
    answer = figures(<<~RUBY)
      before = [Memintro.rss, Memintro.uss]
      text = "x" * #{64 * MIB}
      during = [Memintro.rss, Memintro.uss]
      text.clear
      GC.start
      put(grown: during.zip(before).map { |a, b| a - b }, left: Memintro.rss - before[0], peak: Memintro.peak_rss - during[0])
    RUBY
    expect(answer[:grown]).to all(be_within(2 * MIB).of(64 * MIB))
    expect(answer[:left]).to be < 4 * MIB
    expect(answer[:peak]).to be > -MIB
  end

  it "makes no object but its Integer, and nothing that tracking sees" do
    answer = figures(<<~RUBY)
      GC.disable
      all = -> { Memintro.rss; Memintro.vsize; Memintro.pss; Memintro.uss; Memintro.swap; Memintro.peak_rss }
      objects = ->(&block) { before = GC.stat(:total_allocated_objects); 1_000.times(&block); GC.stat(:total_allocated_objects) - before }
      blocks = ->(work) { before = Memintro.totals.allocations; work.call; Memintro.totals.allocations - before }
      Memintro.start
      # The first call of a line fills Ruby's caches.
      answers = Array.new(3) { [objects.call { Memintro.rss } - objects.call {}, blocks.call(all) - blocks.call(-> {})] }
      put(objects: answers.last[0], blocks: answers.last[1])
    RUBY
    expect(answer).to eq(objects: 0, blocks: 0)
  end

  it "answers for the child after a fork, also one that Ruby knows nothing of" do
    answer = figures(read_program("process_figures/forked_child.rb"))
    %i[ruby c].each do |way|
      vsize, rss, own_vsize, own_rss = answer[way]
      expect(rss).to be_within(MIB).of(own_rss)
      expect(vsize).to be_within(2 * MIB).of(own_vsize)
      expect(rss).to be < answer[:parent] - (40 * MIB)
    end
    expect(answer[:again]).to be_within(2 * MIB).of(answer[:parent])
  end

  it "finds its file again when the program has closed all descriptors, and leaves alone what took the number" do
    answer = figures(<<~'RUBY')
      before = Memintro.rss
      number = Dir.children("/proc/self/fd").map(&:to_i).find { |n| File.readlink("/proc/self/fd/#{n}").end_with?("/statm") }
      IO.for_fd(number).close
      other = File.open("/proc/1/statm")
      taken = other.fileno == number
      after = Memintro.rss
      put(taken: taken, difference: (after - before).abs, other_open: other.read.split.size)
    RUBY
    expect(answer).to include(taken: true, other_open: 7)
    expect(answer[:difference]).to be < MIB
  end

  it "answers in trap handlers, finalizers, Ractors, beside collections and in a killed thread" do
    answer = figures(read_program("process_figures/odd_places.rb"), flags: ["-W0"])
    answers = answer.values_at(:trapped, :finalized, :beside, :stressed)
    expect(answers.map { |figures| figures.grep(Integer).size }).to eq([6, 6, 6, 6])
    expect(answer[:ractors].flatten).to all(be > MIB)
    expect(answer[:ended]).to be(true)
  end

  it "lets other threads run while the kernel walks for pss" do
    answer = figures(<<~'RUBY')
      ballast = "x" * (256 << 20)
      counted = 0
      counter = Thread.new { loop { counted += 1 } }
      Thread.pass until counted > 1_000
      # With the lock held, another thread would run between the calls only, at the end of a time slice of 100 ms. This
      # one waits for such a slice after each call without it, so no more are made than are needed.
      moved = 0
      50.times { before = counted; Memintro.pss; break if (moved += counted > before ? 1 : 0) == 5 }
      put(moved: moved)
    RUBY
    expect(answer[:moved]).to be >= 5
  end

  # Files in which the kernel tells what groups below the root use that hold this process.
  def files_of_own_groups
    File.readlines("/proc/self/cgroup", chomp: true).filter_map do |line|
      _, controllers, path = line.split(":", 3)
      next if path == "/"

      file = "/sys/fs/cgroup#{path}/memory.current" if controllers.empty?
      file = "/sys/fs/cgroup/memory#{path}/memory.usage_in_bytes" if controllers.split(",").include?("memory")
      file if file && File.exist?(file)
    end
  end

  # Other processes run in the group, so its usage may change between two readings.
  it "says of the machine's own control group what the kernel says" do
    found = Memintro.cgroup
    skip "no memory control group holds this process, or none is seen" if found.nil? && files_of_own_groups.empty?
    expect(found).to be_a(Memintro::Cgroup)
    file = Dir[File.join(found.path, "memory.{current,usage_in_bytes}")].first
    near = Array.new(10) do
      before, ours, after = File.read(file).to_i, Memintro.cgroup.usage_bytes, File.read(file).to_i
      ours.between?([before, after].min - (64 * MIB), [before, after].max + (64 * MIB))
    end
    expect(near).to include(true)
    expect([found.version, File.basename(file)]).to eq([1, "memory.usage_in_bytes"]).or eq([2, "memory.current"])
    expect(found.usage_bytes).to be > MIB
    expect(found.reclaimable_bytes).to be_between(0, found.usage_bytes)
  end

  # Runs it in a mount name space of its own, in which nothing is at /proc.
  def without_proc(*command)
    result = run_command("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc || exit 99; exec "$@"', "sh",
                         *command)
    skip "mounts are refused here: #{result.stderr}" if result.status.exitstatus == 99 || /unshare:/ =~ result.stderr
    result
  end

  def ruby_without_proc(code, *requires)
    flags = ["memintro", *requires].map { |name| "-r#{name}" }
    without_proc(RbConfig.ruby, "-I#{Subprocess::LIB}", *flags, "-e", code).must_succeed.stdout.lines.map(&:chomp)
  end

  # Figures that hardly a process has here, as swapped pages, in files as this kernel writes them.
  it "takes each figure from its place in the kernel's files, to the byte" do
    files = %w[stat statm status smaps_rollup].to_h { |name| [name, File.read("/proc/self/#{name}")] }
    pages = Etc.sysconf(Etc::SC_PAGESIZE) / 1024
    program = read_program("process_figures/kernel_files.rb")
    lines = ruby_without_proc("files, pages = #{files.inspect}, #{pages}\n#{program}")
    alone = [1000 * pages, 5_000, 300, 654_000, 20, 4711 * pages].map { |kib| kib * 1024 }
    family = [2000 * pages, 11_000, 700, 1_419_000, 15_000_000, 9423 * pages].map { |kib| kib * 1024 }
    expect(lines.map { |line| JSON.parse(line) }).to eq([alone, alone, family])
  end

  describe "where there is no /proc" do
    it "says so, of this process and of others" do
      lines = ruby_without_proc(<<~RUBY)
        def told = (yield; puts "nothing") rescue puts("\#{$!.class}: \#{$!.message}")
        %i[rss pss uss swap peak_rss vsize].each { |name| told { Memintro.public_send(name) } }
        told { Memintro::ProcessMemory.new(Process.pid) }
        told { Memintro::ProcessMemory.new(1, children: true) }
        p Memintro.cgroup
      RUBY
      expect(lines.first(6)).to all(match(%r{\AMemintro::ProcError: /proc/self.* cannot be read: .*mount it}))
      expect(lines[6, 2])
        .to all(match(%r{\AMemintro::ProcError: /proc cannot be read: it is not mounted here; .* so mount it\z}))
      expect(lines.drop(8)).to eq(["nil"])
    end

    it "takes snapshots all the same, and tells what is missing" do
      lines = ruby_without_proc(<<~RUBY)
        light, all = Memintro.snapshot, Memintro.snapshot(:all)
        p light.memory, light.missing.keys, all.missing.keys - light.missing.keys
        puts [light, all].flat_map { |snapshot| snapshot.missing.values }.uniq
        p light.gc[:count].between?(1, GC.count), all.classes.size > 30, all.iseqs[:count] > 500
        puts light.inspect
      RUBY
      expect(lines.first(3)).to eq(["{}", "[:rss_bytes, :peak_rss_bytes, :swap_bytes, :vsize_bytes]",
                                    "[:pss_bytes, :uss_bytes]"])
      expect(lines[3..-5]).to all(match(%r{\A/proc/self.* cannot be read: .* so mount it\z}))
      expect(lines.last(4)).to match([*["true"] * 3, /GCs, .*, missing rss_bytes peak_rss_bytes swap_bytes vsize_byt/])
    end

    it "has GetProcessMem answer as for a process that is not there" do
      lines = ruby_without_proc(<<~RUBY, "memintro/get_process_mem")
        [GetProcessMem.new, GetProcessMem.new(1)].each { |memory| p [memory.bytes.class, memory.mb, memory.linux?] }
      RUBY
      expect(lines).to eq(["[BigDecimal, 0.0, false]"] * 2)
    end

    it "has memintro rss fail with one line, before it starts anything" do
      # A started program would make a file: the test does not depend on what it prints.
      Dir.mktmpdir do |folder|
        started = File.join(folder, "started")
        [["1"], ["--watch", "1", "1"], ["--format", "json", "1"], ["--", "touch", started],
         ["--watch", "1", "--", "touch", started]].each do |arguments|
          result = without_proc(RbConfig.ruby, Subprocess::EXE, "rss", *arguments)
          expect([result.status.exitstatus, result.stdout, result.stderr])
            .to match([1, "", %r{\Amemintro: /proc.* cannot be read: .*; .* so mount it\n\z}]), arguments.inspect
        end
        expect(File.exist?(started)).to be(false)
      end
    end
  end
end
