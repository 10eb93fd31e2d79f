# frozen_string_literal: true

require_relative "../spec_helper"

# What makes an account without Ruby's heap quick: the kernel tells ranges of resident pages, where it can, and nobody
# waits until it has taken the copy's page tables apart.
RSpec.describe "an account that does not wait", :vm, :vm_long do
  # Since Linux 6.7.
  def self.tells_ranges?
    RbConfig::CONFIG["host_os"].start_with?("linux") &&
      (Etc.uname[:release].split(".").first(2).map(&:to_i) <=> [6, 7]) >= 0
  end

  CALLS = <<~'RUBY'
    LIBC = Fiddle.dlopen(nil)
    INT, LONG, POINTER = Fiddle::TYPE_INT, Fiddle::TYPE_LONG, Fiddle::TYPE_VOIDP
    def call(name, types, *arguments) = Fiddle::Function.new(LIBC[name], types, POINTER).call(*arguments)
    def map(bytes, flags = 0x22) = call("mmap", [POINTER, LONG, INT, INT, INT, LONG], 0, bytes, 3, flags, -1, 0)
    def fill(bytes, value = 1) = map(bytes).tap { |at| call("memset", [POINTER, INT, LONG], at, value, bytes) }
    def advise(at, bytes, advice) = call("madvise", [POINTER, LONG, INT], at, bytes, advice)
    def read_pages(at, bytes) = 0.step(bytes - 1, 4096) { |place| at[place] }
    def lines(with_heap = false) = Memintro::Native.account(with_heap, true, 20).first.b.lines(chomp: true)
    def sum(lines, key) = lines.grep(/^#{key} /).sum { |line| line.split[1].to_i }
    # Refuses a system call with EPERM, for good.
    def refuse(number)
      filter = [0x20, 0, 0, 0].pack("SCCL") + [0x15, 0, 1, number].pack("SCCL") + [0x06, 0, 0, 0x0005_0001].pack("SCCL") +
               [0x06, 0, 0, 0x7fff_0000].pack("SCCL")
      program = Fiddle::Pointer[[4, Fiddle::Pointer[filter].to_i].pack("Sx6Q")]
      call("prctl", [INT, *[LONG] * 4], 38, 1, 0, 0, 0)
      raise "no filter" unless call("prctl", [INT, *[LONG] * 4], 22, 2, program.to_i, 0, 0).to_i.zero?
    end
  RUBY

  # smaps is its twin: of the page of zeroes, small and huge, of memory that copies do not get, of shared memory, of a
  # private file that was written to.
  it "says by ranges of pages what smaps says" do
    skip "this kernel does not tell ranges" unless self.class.tells_ranges?
    skip "another number of ioctl" unless RbConfig::CONFIG["host_cpu"] == "x86_64"

    result = run_ruby(code: CALLS + <<~'RUBY', requires: %w[json fiddle memintro]).must_succeed.json
      # Ruby has switched huge pages off.
      call("prctl", [INT, *[LONG] * 4], 41, 0, 0, 0, 0)
      zeroes = map(8 << 20)
      advise(zeroes, 8 << 20, 15)
      read_pages(zeroes, 8 << 20)
      # A copy gets page tables only of what was written to.
      zeroes[0] = 1
      huge = map(16 << 20)
      advise(huge, 16 << 20, 14)
      read_pages(huge, 8 << 20)
      call("memset", [POINTER, INT, LONG], huge + (10 << 20), 1, 4 << 20)
      fill(100 << 10).then { |at| advise(at, 100 << 10, 10) }
      fill(60 << 10).then { |at| advise(at, 60 << 10, 18) }
      shared = map(4 << 20, 0x21)
      call("memset", [POINTER, INT, LONG], shared, 1, 3 << 20)
      fill(5 << 20).then { |at| call("mprotect", [POINTER, LONG, INT], at, 5 << 20, 0) }
      GC.start
      2.times { lines }
      quick = lines
      refuse(16)
      slow = lines
      keys = %w[ranges rss other own zero file]
      puts JSON.generate(quick: keys.to_h { |key| [key, sum(quick, key)] }, slow: keys.to_h { |key| [key, sum(slow, key)] })
    RUBY
    quick, slow = result.values_at(:quick, :slow)
    expect([quick[:ranges], slow[:ranges]]).to eq([2, 0])
    # The copies themselves read lists of other lengths.
    %i[rss other own file].each { |key| expect(quick[key]).to be_within(256 << 10).of(slow[key]), key.to_s }
    expect(quick[:zero]).to eq(slow[:zero]).and eq((16 << 20) - 4096)
    expect(quick[:other]).to be_between((5 << 20) + (160 << 10), 6 << 20)
    expect(quick[:file]).to be > 3 << 20
  end

  it "asks smaps where much memory is kept from copies" do
    result = run_ruby(code: CALLS + <<~'RUBY', requires: %w[json fiddle memintro]).must_succeed.json
      2.times { lines }
      before = lines
      fill(20 << 20).then { |at| advise(at, 20 << 20, 10) }
      after = lines
      puts JSON.generate(ranges: [before, after].map { |one| sum(one, "ranges") }, grown: sum(after, "other") - sum(before, "other"))
    RUBY
    expect(result[:ranges]).to eq(self.class.tells_ranges? ? [2, 1] : [0, 0])
    expect(result[:grown]).to be_within(64 << 10).of(20 << 20)
  end

  # A thread takes note of the copy's end.
  it "says the same where no thread may be started" do
    skip "other numbers of system calls" unless RbConfig::CONFIG["host_cpu"] == "x86_64"

    result = run_ruby(code: CALLS + <<~'RUBY', requires: %w[json fiddle memintro]).must_succeed.json
      blocks = Array.new(60_000) { Fiddle.malloc(1000).tap { |block| Fiddle::Pointer.new(block)[0, 1000] = "x" * 1000 } }
      blocks.each_with_index { |block, n| Fiddle.free(block) if n.odd? }
      GC.disable
      take = -> { lines.grep(/^(?:arena 0|broken) /).to_h { |line| line.split(" ", 2).then { |key, rest| [key, rest.split.map(&:to_i)] } } }
      2.times { lines }
      before = take.call
      # Of clone (56) with CLONE_THREAD, which is for bare threads: Ruby's are made by clone3.
      steps = [[0x20, 0, 0, 0], [0x15, 0, 3, 56], [0x20, 0, 0, 16], [0x45, 0, 1, 0x10000], [0x06, 0, 0, 0x0005_0001],
               [0x06, 0, 0, 0x7fff_0000]]
      filter = steps.map { |step| step.pack("SCCL") }.join
      program = Fiddle::Pointer[[6, Fiddle::Pointer[filter].to_i].pack("Sx6Q")]
      call("prctl", [INT, *[LONG] * 4], 38, 1, 0, 0, 0)
      raise "no filter" unless call("prctl", [INT, *[LONG] * 4], 22, 2, program.to_i, 0, 0).to_i.zero?
      after = take.call
      account = Memintro.account(ruby: false)
      left = Dir.glob("/proc/self/task/*/children").sum { |file| File.read(file).split.size }
      puts JSON.generate(before: before, after: after, rest: account.rss - account.rows.sum(&:bytes), left: left)
    RUBY
    before, after = result.values_at(:before, :after)
    expect([before, after].map(&:keys)).to all(contain_exactly(:arena))
    expect(result).to include(rest: 0, left: 0)
    # 30,000 chunks, each of 1,008 bytes.
    expect(before[:arena][3]).to be_between(29_000 * 1008, 36_000 * 1008)
    expect(after[:arena].zip(before[:arena]).map { |one, other| (one - other).abs }).to all(be < 200_000)
  end

  # Pages of Ruby's heap are passed over, and the search ends with the last block that the C library has counted. A page
  # that is none, or a wrong end, would leave a block out.
  it "finds each block with a mapping of its own between the pages of Ruby's heap", vm_long: false do
    found = run_ruby(code: CALLS + <<~'RUBY', requires: %w[json fiddle memintro]).must_succeed.json
      # Blocks are as long as several of Ruby's pages, so that there are no gaps.
      call("mallopt", [INT, INT], -3, 128 << 10)
      objects, blocks = [], []
      random = Random.new(5)
      found = Array.new(6) do
        40.times do
          objects << Array.new(3000) { Object.new }
          blocks << Fiddle.malloc(((3 + random.rand(40)) << 16) - 4096)
          Fiddle::Pointer.new(blocks.last)[0, 8000] = "\x02\x10\0\0\0\0\0\0" * 1000
          Fiddle.free(blocks.delete_at(random.rand(blocks.size))) if blocks.size > 180 && random.rand < 0.5
        end
        now = lines.grep(/^(?:mmapped|counted) /).map { |line| line.split.drop(1).first(2).map(&:to_i) }
        [*now, blocks.size]
      end
      ends = File.read("/proc/self/maps").scan(/^(\h+)-(\h+) rw-p 00000000 00:00 0 *$/).map { |pair| pair.map(&:hex) }
      # Neighbours count as one.
      runs = ends.slice_when { |before, after| before.last != after.first }
      puts JSON.generate(found: found, largest: runs.map { |run| run.last.last - run.first.first }.max)
    RUBY
    found, largest = found.values_at(:found, :largest)
    expect(largest).to be > 20 << 20
    expect(found.map(&:first)).to eq(found.map { |one| one[1] })
    # Ruby has some of its own.
    expect(found.map { |one| one.first.first - one.last }).to all(be_between(0, 20))
    expect(found.last.last).to be > 120
  end

  # The kernel takes some milliseconds for the page tables of 400 MiB.
  it "leaves its copy to a hidden thread, and no rest of either" do
    result = run_ruby(code: CALLS + <<~'RUBY', requires: %w[json fiddle memintro]).must_succeed.json
      sleep(1.5) # of GC stress, in which Ruby takes longer than the copy's end
      kept = fill(400 << 20)
      signals = 0
      trap("CLD") { signals += 1 }
      tasks = -> { Dir.children("/proc/self/task").size }
      children = -> { Dir.glob("/proc/self/task/*/children").sum { |file| File.read(file).split.size } }
      Memintro.account(ruby: false)
      # Threads that Ruby has for itself are there then.
      Thread.new { sleep(0.01) }.join
      sleep(0.5)
      alone = tasks.call
      seen = waited = 0
      40.times do
        Memintro::Native.account(false, true, 20)
        seen += tasks.call - alone
        begin
          Process.wait(-1, Process::WNOHANG)
          waited += 1
        rescue Errno::ECHILD
          nil
        end
      end
      forked = Array.new(5) do
        Memintro.account(ruby: false)
        pid = fork { exit!(Memintro.account(ruby: false).then { |one| one.rss == one.rows.sum(&:bytes) } ? 7 : 1) }
        Process.wait2(pid).last.exitstatus
      end
      sleep(0.1)
      more = tasks.call - alone
      others = Array.new(4) { Thread.new { Memintro.account(ruby: false).then { |one| one.rss - one.rows.sum(&:bytes) } } }.map(&:value)
      sleep(0.01) until children.call.zero?
      puts JSON.generate(seen: seen, waited: waited, forked: forked, others: others, signals: signals - 5,
                         more: more, children: children.call)
    RUBY
    expect(result).to include(seen: be > 0, waited: 0, forked: [7] * 5, others: [0] * 4)
    # Threads that Ruby keeps for later may end meanwhile.
    expect(result).to include(signals: 0, more: be <= 0, children: 0)
  end
end
