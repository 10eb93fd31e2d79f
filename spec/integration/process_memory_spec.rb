# frozen_string_literal: true

require_relative "../spec_helper"
require "bigdecimal"
require "memintro"

# Memory of other processes, against what the kernel's files say of them.
RSpec.describe Memintro::ProcessMemory do
  include OtherUser

  SHARE = 64 * 1024 * 1024

  # A child with 64 MiB which, if asked to, forks children that only read them and one that writes its own.
  FAMILY = <<~'RUBY'
    $stdout.sync = true
    text = "x" * Integer(ARGV[0])
    2.times { |n| fork { (text.sum; "y" * Integer(ARGV[1]) if n.zero?).then { |own| puts Process.pid; sleep 100; own } } } if ARGV[1]
    puts Process.pid
    sleep 100
  RUBY

  def with_child(code = FAMILY, *arguments, lines: 1)
    reader, writer = IO.pipe
    pid = spawn(bare_env, RbConfig.ruby, "-e", code, "--", *arguments.map(&:to_s), out: writer, pgroup: true)
    writer.close
    Timeout.timeout(60) { lines.times { reader.gets || raise("the child said nothing") } }

    yield pid
  ensure
    reader&.close
    if pid
      Process.kill(:KILL, -pid)
      Process.wait(pid)
    end
  end

  def kernel(pid, file, field) = File.read("/proc/#{pid}/#{file}")[/^#{field}:\s+(\d+) kB/, 1].to_i * 1024

  it "says of a child what the kernel says" do
    with_child(FAMILY, SHARE) do |pid|
      memory = described_class.new(pid)
      expect([memory.pid, memory.children?, memory.pids]).to eq([pid, false, [pid]])
      { rss: %w[status VmRSS], peak_rss: %w[status VmHWM], swap: %w[status VmSwap], vsize: %w[status VmSize],
        pss: %w[smaps_rollup Pss] }.each do |name, where|
        expect(memory.public_send(name)).to be_within(1 << 20).of(kernel(pid, *where)), name.to_s
      end
      expect(memory.uss).to be_between(SHARE, memory.pss)
      expect(memory.bytes).to be_within(1 << 20).of(memory.rss)
      expect(memory.to_h.keys).to eq(described_class::FIGURES)
      expect(memory.inspect).to match(/\A#<Memintro::ProcessMemory #{pid}, rss \d+\.\d MiB>\z/)
      expect(memory).to be_frozen
    end
  end

  # Touches memory as fast as it can, and gives it back.
  GROWING_PROGRAM = <<~'RUBY'
    $stdout.sync = true
    puts :ready
    loop { kept = Array.new(300) { "x" * (1 << 20) }; kept.clear; GC.start }
  RUBY

  it "gives figures of one reading: a process that grows has no more USS than PSS, PSS than RSS, RSS than its peak" do
    with_child(GROWING_PROGRAM) do |pid|
      [false, true].each do |children|
        memory = described_class.new(pid, children: children)
        all = Array.new(300) { memory.to_h.values_at(:uss, :pss, :rss, :peak_rss) }
        expect(all.reject { |figures| figures.sort == figures }).to eq([])
        expect(all.map { |_, pss,| pss }.minmax.reduce(:-)).to be < -(10 << 20)
      end
    end
  end

  it "counts pages that children share once" do
    with_child(FAMILY, SHARE, SHARE, lines: 3) do |pid|
      memory = described_class.new(pid, children: true)
      expect(memory.pids.size).to eq(3)
      # 64 MiB that three processes share, and 64 MiB of one of them.
      expect(memory.pss).to be_between(2 * SHARE, 2.6 * SHARE)
      expect(memory.bytes).to be_within(1 << 20).of(memory.pss)
      expect(memory.rss).to be > 4 * SHARE
      expect(memory.uss).to be_between(SHARE, 1.6 * SHARE)
      expect(memory.to_h.keys).to eq(described_class::FIGURES)
      expect(described_class.new(pid).pss).to be < 0.8 * SHARE
      expect(memory.inspect).to match(/ #{pid} and its children, pss \d+\.\d MiB>/)
    end
  end

  it "goes on without a child that ends meanwhile" do
    with_child(<<~'RUBY') do |pid|
      $stdout.sync = true
      puts 1
      loop { Process.wait(fork { exit!(0) }) }
    RUBY
      memory = described_class.new(pid, children: true)
      expect(Array.new(200) { memory.pss }).to all(be_positive)
    end
  end

  it "says so when a process is gone, and does not mistake its successor for it" do
    memory = nil
    with_child(FAMILY, 1) { |pid| memory = described_class.new(pid) }
    expect { memory.rss }.to raise_error(Memintro::NoProcessError, /no process #{memory.pid}; it may have ended/)
    expect { memory.pss }.to raise_error(Memintro::NoProcessError)
    expect { described_class.new(memory.pid) }.to raise_error(Memintro::NoProcessError)
    expect { described_class.new(memory.pid, children: true) }.to raise_error(Memintro::NoProcessError)
    expect(memory.inspect).to end_with("#{memory.pid}, not to be seen>")
    started = Memintro::Native.process_started(Process.pid)
    expect(Memintro::Native.process_sizes(Process.pid, started).size).to eq(2)
    expect { Memintro::Native.process_sizes(Process.pid, started + 1) }.to raise_error(Memintro::NoProcessError)
  end

  it "has nothing where a process has ended and was not waited for" do
    pid = spawn(bare_env, "true")
    Timeout.timeout(60) { sleep(0.02) until File.read("/proc/#{pid}/stat")[/\) (\w)/, 1] == "Z" }
    expect(described_class.new(pid).to_h.values).to eq([0] * 6)
  ensure
    Process.wait(pid)
  end

  it "refuses what is no process id, naming it" do
    { "12" => TypeError, nil => TypeError, 1.5 => TypeError, 0 => ArgumentError, -1 => ArgumentError,
      2**31 => ArgumentError }.each do |value, kind|
      expect { described_class.new(value) }.to raise_error(kind, /pid is #{Regexp.escape(value.inspect)}; it must be/)
    end
  end

  it "tells another user what everybody may know, and refuses the rest in words" do
    result = run_ruby_as_nobody(<<~'RUBY', Process.pid)
      memory = Memintro::ProcessMemory.new(Integer(ARGV[0]))
      puts memory.rss.positive?, memory.vsize.positive?, Memintro.pss.positive?
      %i[pss uss].each do |name|
        memory.public_send(name)
      rescue Memintro::ForbiddenError => e
        puts e.message
      end
    RUBY
    lines = result.stdout.lines.map(&:chomp)
    expect(lines.first(3)).to eq(%w[true true true])
    message = "/proc/#{Process.pid}/smaps_rollup may not be read: process #{Process.pid} is another user's, or /proc " \
              "is mounted with hidepid; run as its user or as root"
    expect(lines.drop(3)).to eq([message] * 2)
  end

  it "tells root without the right to look at others what it lacks" do
    skip "only root is root" unless Process.uid.zero?
    # Either of the others is enough since Linux 5.8.
    rights = "-sys_ptrace,-sys_admin,-perfmon"
    pid = spawn("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sleep", "60")
    Timeout.timeout(30) { sleep 0.02 until File.read("/proc/#{pid}/cmdline").start_with?("sleep") }
    code = <<~'RUBY'
      begin
        Memintro::ProcessMemory.new(Integer(ARGV[0])).pss
      rescue Memintro::ForbiddenError => e
        puts e.message
      end
    RUBY
    result = run_command("setpriv", "--bounding-set=#{rights}", "--inh-caps=#{rights}", RbConfig.ruby,
                         "-I#{Subprocess::LIB}", "-rmemintro", "-e", code, pid.to_s)
    skip "rights cannot be dropped here: #{result.stderr}" if result.stderr.start_with?("setpriv:")
    expect(result.must_succeed.stdout)
      .to eq("root may not read /proc/#{pid}/smaps_rollup: the capability CAP_SYS_PTRACE is missing (in a " \
             "container, add --cap-add=SYS_PTRACE), or a security module forbids it\n")
  ensure
    if pid
      Process.kill(:KILL, pid)
      Process.wait(pid)
    end
  end

  [1, 2].each do |level|
    it "says that a process is hidden, not that it is gone, under hidepid=#{level}" do
      result = run_ruby_as_nobody(<<~'RUBY', Process.pid, before: "mount -t proc -o hidepid=#{level} proc /proc")
        begin
          Memintro::ProcessMemory.new(Integer(ARGV[0]))
        rescue Memintro::ForbiddenError => e
          puts e.message
        end
        puts Memintro.rss.positive?, Memintro::ProcessMemory.new(Process.pid, children: true).pss.positive?
      RUBY
      refusal = %r{\A/proc/#{Process.pid}.* may not be read: .*hidepid}
      expect(result.stdout.lines.map(&:chomp)).to match([refusal, "true", "true"])
    end
  end

  it "lets other threads run while the kernel walks" do
    with_child(FAMILY, 4 * SHARE) do |pid|
      memory = described_class.new(pid)
      counted = 0
      counter = Thread.new { loop { counted += 1 } }
      Thread.pass until counted > 1_000
      # After each walk this thread waits for the other one's time slice, so no more are made than are needed.
      moved = 0
      50.times do
        before = counted
        memory.pss
        break if (moved += counted > before ? 1 : 0) == 5
      end
      counter.kill
      expect(moved).to be >= 5
    end
  end

  it "answers in finalizers, trap handlers, Ractors and forked children" do
    answer = run_ruby(code: read_program("process_memory/odd_places.rb"), flags: ["-W0"]).must_succeed.json
    expect(answer).to eq(sizes: [6, 6, 6], parent: true)
  end

  it "knows the most that a child has had which was waited for, or one of its own" do
    answer = run_ruby(code: <<~'RUBY').must_succeed.json
      require "json"
      big = "#{RbConfig.ruby} -e 'x = \"x\" * (200 << 20); x = nil'"
      before = Memintro::ProcessMemory.waited_peak_rss
      system("true")
      small = Memintro::ProcessMemory.waited_peak_rss
      system("sh", "-c", "#{big}; true")
      puts JSON.generate([before, small.positive? && small <= Memintro.peak_rss + (1 << 20),
                          Memintro::ProcessMemory.waited_peak_rss])
    RUBY
    expect(answer).to match([0, true, a_value_between(200 << 20, 280 << 20)])
  end
end
