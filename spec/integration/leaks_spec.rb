# frozen_string_literal: true

require_relative "../spec_helper"

RSpec.describe "Memintro.leaks" do
  FOLDER = "/usr/lib/x86_64-linux-gnu"
  LIBRARIES = { "jemalloc" => "#{FOLDER}/libjemalloc.so.2", "tcmalloc" => "#{FOLDER}/libtcmalloc_minimal.so.4",
                "mimalloc" => "#{FOLDER}/libmimalloc.so.2" }.freeze
  # How many of 200 blocks uncleared memory may still hold.
  STALE = 25

  def scenario(env = {})
    script = File.join(Subprocess::SCRIPTS, "leak_scenario.rb")
    Subprocess.run_command(RbConfig.ruby, "-I", Subprocess::LIB, script, env: env).must_succeed.json
  end

  def count(found, size, verdict)
    found[:rows].select { |row| row[0] == size && row[1] == verdict }.sum { |row| row[2] }
  end

  # Whatever is held must never be called leaked; what is leaked may be missed where old addresses are left.
  def expect_truth(found, missed: STALE)
    [3401, 3501, 3601, 3701, 3801, 3901, 4001, 4201].each do |size|
      lost = count(found, size, "leaked") + count(found, size, "indirectly_leaked")
      expect(lost).to eq(0), "#{size}: #{found[:rows]}"
    end
    expect(count(found, 3001, "leaked")).to be_between(200 - missed, 200)
    return if missed > STALE

    expect(count(found, 3101, "leaked")).to be_between(200 - missed, 200)
    expect(count(found, 3101, "indirectly_leaked")).to be_between(200 - missed, 200)
    expect(count(found, 3201, "leaked")).to be_between(200 - missed, 200)
    expect(count(found, 3301, "indirectly_leaked")).to be_between(400 - (2 * missed), 400)
  end

  it "tells leaked blocks from those that something holds, by line and size" do
    found = scenario("WORDS" => "1")
    expect_truth(found)
    expect(found[:basis]).to eq("chunks")
    lines = found[:rows].to_h { |row| [row[0], row[3]] }
    expect(lines.slice(3001, 3101, 3201)).to eq(3001 => "leak_scenario.rb:16", 3101 => "leak_scenario.rb:22",
                                                3201 => "leak_scenario.rb:31")
    held = found[:rows].find { |row| row[0] == 3301 }
    expect(held[4]).to start_with("a leaked block of 3,201 bytes from ").and end_with("leak_scenario.rb:31")
    expect(found[:rows].find { |row| row[0] == 3201 }[5]).to start_with("a block's address")
    expect(found[:verdict].first).to match(/\A\d+ blocks of 3,\d01 bytes \(\d+\.\d KiB\) that nothing points to, from /)
  end

  it "finds the buffers of IOs, which Ruby points to at odd places" do
    %w[full off].each do |mode|
      found = run_ruby(code: <<~RUBY, requires: %w[json memintro]).must_succeed.json
        Memintro.start if #{mode == 'full'}
        IOS = Array.new(30) { IO.pipe.each { |io| io.write("abc\\ndef\\n") && io.flush if io.sync }.tap { |(r, _)| r.gets } }
        found = Memintro.leaks.groups.select { |group| [8192, 8200].include?(group.size) && group.verdict != :anchored }
        puts JSON.generate(lost: found.sum(&:count), open: IOS.size)
      RUBY
      expect(found).to eq(lost: 0, open: 30)
    end
  end

  it "calls no block held for an old address in the room of an array, a hash or a buffer" do
    found = run_ruby(code: <<~RUBY, requires: %w[json fiddle memintro]).must_succeed.json
      Memintro.start
      def leak(count) = Array.new(count) { Fiddle.malloc(7_000) }
      # Freed blocks of each size that are full of addresses, and then have new users.
      100.times { leak(16).freeze }
      GC.start
      KEPT = [Array.new(100) { |n| { n => n } }, Array.new(100) { |n| [n] * 4 << n << n },
              Array.new(100) { |n| "x" * 100 << "y" }, IO.pipe.each { |io| io.write("x") if io.sync }]
      found = Memintro.leaks.groups.select { |group| group.size == 7_000 }
      puts JSON.generate(rows: found.map { |group| [group.verdict, group.count] })
    RUBY
    expect(found[:rows].first.first).to eq("leaked")
    expect(found[:rows].first.last).to be_between(1_590, 1_600)
  end

  it "judges all blocks of glibc without tracking" do
    found = scenario("MODE" => "off")
    expect_truth(found)
    expect(found[:rows].map { |row| row[3] }.compact).to all(eq(""))
    expect(found[:verdict].join).to include("from a line that is not known",
                                            "Memintro.start, work, and Memintro.leaks again")
  end

  LIBRARIES.each do |name, path|
    it "judges the blocks that are tracked on #{name}" do
      skip "no #{name} here" unless File.exist?(path)

      found = scenario("LD_PRELOAD" => path)
      # The allocator's own caches keep addresses of blocks that it has handed out, and what C code has freed is not
      # told from what it uses.
      expect_truth(found, missed: 80)
      expect(found.slice(:basis, :allocator)).to eq(basis: "tracked", allocator: name)
    end
  end

  it "says that jemalloc needs tracking" do
    skip "no jemalloc here" unless File.exist?(LIBRARIES["jemalloc"])

    result = run_ruby(code: "Memintro.leaks", requires: %w[memintro], env: { "LD_PRELOAD" => LIBRARIES["jemalloc"] })
    expect(result.stderr).to include("the inside of jemalloc is not known, so only blocks that are tracked can be " \
                                     "judged. Start tracking (Memintro.start), work, and ask again")
    sampled = run_ruby(code: "Memintro.start(mode: :sampled); Memintro.leaks", requires: %w[memintro],
                       env: { "LD_PRELOAD" => LIBRARIES["jemalloc"] })
    expect(sampled.stderr)
      .to include("go over to full mode (Memintro.start), work, and ask again")
  end

  it "finds the same after GC.compact, and in a forked child" do
    expect_truth(scenario("COMPACT" => "1"))
    child = run_ruby(code: <<~RUBY, requires: %w[json fiddle memintro]).must_succeed.json
      Memintro.start
      def leak = 300.times { Fiddle.malloc(3001) }
      leak
      read, write = IO.pipe
      Process.wait(fork { write.write(Memintro.leaks.groups.find { |group| group.size == 3001 }.count.to_s) })
      write.close
      puts JSON.generate(count: Integer(read.read))
    RUBY
    expect(child[:count]).to be_between(270, 300)
  end

  it "calls nothing leaked that threads allocate and free meanwhile" do
    result = run_ruby(code: read_program("leaks/busy_threads.rb"), requires: %w[json fiddle memintro]).must_succeed.json
    expect(result).to eq(found: [[]] * 5, threads: 4)
  end

  it "refuses in words if malloc's memory was written over, and judges tracked blocks then" do
    code = read_program("leaks/corrupt_heap.rb")
    refused = run_ruby(code: code, requires: %w[json fiddle memintro]).must_succeed.json
    expect(refused[:refused]).to include("glibc's chunks cannot be read to their end", "no verdict is given")
    tracked = run_ruby(nil, "tracked", code: code, requires: %w[json fiddle memintro]).must_succeed.json
    expect(tracked[:basis]).to eq("tracked")
    expect(tracked[:notes].first).to include("glibc's chunks cannot be read to their end")
  end

  it "raises near the limit of the process' memory, as Ruby does, and does not end it" do
    code = <<~'RUBY'
      Memintro.start
      50.times { Fiddle.malloc(7_001) }
      # Loads all files: without room, the parser of Ruby 3.4 itself ends the process, and Ruby 3.3 repeats one
      # instruction, where it would release the lock of its Ractors after the error.
      Memintro.leaks if RUBY_VERSION >= "3.3"
      data = File.read("/proc/self/status")[/VmData:\s+(\d+)/, 1].to_i << 10
      Process.setrlimit(:DATA, data + ARGV.first.to_i, data + ARGV.first.to_i)
      said = begin
        Memintro.leaks && "found"
      rescue Memintro::LeaksError, NoMemoryError => e
        "#{e.class} #{e.message}"
      end
      puts said
    RUBY
    # Ruby's own error may come at any line, or find no room itself.
    errors = /failed to allocate memory|NoMemoryError|\AMemintro::LeaksError .* (?:limit of the process|forbids it)/
    [100_000, 300_000, 2_000_000, 16_000_000].each do |more|
      result = run_ruby(nil, more, code: code, requires: %w[fiddle memintro])
      expect(result.stdout + result.stderr).to match(errors)
      expect(result.stderr).not_to include("memory allocation of")
    end
  end

  it "finds the same under limits of the kernel, or says which forbids it, and leaves no copy" do
    script = File.join(Subprocess::SCRIPTS, "leaks_under_limits.rb")
    told = run_command(RbConfig.ruby, "-I", Subprocess::LIB, script).must_succeed.json
    forbidden = { no_file: "ulimit -n", addresses: "ulimit -v", processes: "ulimit -u" }
    forbidden.each do |limit, why|
      expect(told.delete(limit)).to match([/\Athis process cannot be copied .*: .*limit \(#{why}/, 0])
    end
    expect(told.keys).to eq(%i[files time stack no_size signals no_children])
    expect(told.values).to all(match([be_between(50 - STALE, 50), 0]))
  end

  # In one of four such processes, the kernel joins that memory with the hook's statics, which hold nothing.
  it "calls nothing leaked that the main thread's own memory holds, beside a preloaded hook" do
    code = <<~RUBY
      libc = Fiddle.dlopen(nil)
      key = Fiddle::Pointer.malloc(8, Fiddle::RUBY_FREE)
      Fiddle::Function.new(libc["pthread_key_create"], [Fiddle::TYPE_VOIDP] * 2, Fiddle::TYPE_INT).call(key, 0)
      key = key[0, 4].unpack1("L")
      set = Fiddle::Function.new(libc["pthread_setspecific"], [Fiddle::TYPE_INT, Fiddle::TYPE_VOIDP], Fiddle::TYPE_INT)
      def keep(set, key) = set.call(key, Fiddle.malloc(77_777))
      keep(set, key)
      puts Memintro.leaks.groups.select { |group| group.size == 77_777 }.map(&:to_s)
    RUBY
    outputs = Array.new(12) { run_ruby(code: code, env: preloaded_env, requires: %w[fiddle memintro]) }
    outputs.map! { |output| output.must_succeed.stdout }
    expect(outputs).to eq([""] * 12)
  end

  it "leaves the process as it was: no child, no signal, no descriptor" do
    result = run_ruby(code: <<~RUBY, requires: %w[json memintro]).must_succeed.json
      signals = 0
      trap(:CHLD) { signals += 1 }
      Memintro.leaks
      before = Dir.children("/proc/self/fd").size
      Memintro.leaks
      after = Dir.children("/proc/self/fd").size
      children = File.read("/proc/self/task/\#{Process.pid}/children") rescue ""
      puts JSON.generate(signals: signals, more: after - before, children: children.split.size)
    RUBY
    expect(result).to eq(signals: 0, more: 0, children: 0)
  end

  it "loads what shows its answer after the search: it would take memory with old addresses, which then hold blocks" do
    loaded = run_ruby(code: <<~RUBY, requires: %w[json memintro]).must_succeed.json
      searched = []
      Memintro::Native.singleton_class.prepend(Module.new do
        define_method(:leaks) { |*given| super(*given).tap { searched << Memintro.autoload?(:Leaks).nil? } }
      end)
      Memintro.leaks
      puts JSON.generate(searched: searched.first, later: Memintro.autoload?(:Leaks).nil?)
    RUBY
    expect(loaded).to eq(searched: false, later: true)
  end

  it "finds the leak of examples/leak.rb" do
    code = 'Memintro.start; load "examples/leak.rb"; found = Memintro.leaks; ' \
           "puts JSON.generate(first: found.groups.first.to_h, says: found.verdict.first)"
    result = run_ruby(code: code, requires: %w[json memintro], chdir: Subprocess::ROOT).must_succeed
    found = JSON.parse(result.stdout.lines.last, symbolize_names: true)
    expect(found[:first]).to include(site: "examples/leak.rb:12", size: 1024, verdict: "leaked")
    expect(found[:first][:count]).to be_between(49_980, 50_000)
    many = /\A(?:49,9[89]\d|50,000) blocks of 1,024 bytes/
    expect(found[:says]).to match(/#{many} \(48\.8 MiB\) that nothing points to, .*:12\.\z/)
  end
end
