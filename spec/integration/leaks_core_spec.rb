# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/native_programs"
require "memintro/support/paths"
require "open3"
require "tmpdir"

# Core files of real processes, searched by `memintro leaks --core`.
RSpec.describe "memintro leaks --core", :native_programs do
  around { |example| Dir.mktmpdir("memintro-core") { |folder| @folder = folder and example.run } }

  # The core file of a program that ends itself by a signal, as the kernel writes it.
  def core_of(code, requires: [], env: {})
    script = File.join(@folder, "program.rb")
    File.write(script, "#{code}\n$stdout.flush\nProcess.kill(:ABRT, Process.pid)\nsleep\n")
    flags = requires.flat_map { |name| ["-r", name] }
    run_command("sh", "-c", 'ulimit -c unlimited && exec "$@"', "sh", RbConfig.ruby, "-I", Subprocess::LIB, *flags,
                script, chdir: @folder, env: env)
    found = Dir[File.join(@folder, "core*")].first
    found or skip "this machine writes core files elsewhere (#{File.read('/proc/sys/kernel/core_pattern').strip})"
  end

  def search(core, *flags) = run_memintro("leaks", "--core", core, *flags)

  def json(core, *flags)
    JSON.parse(search(core, "--json", *flags).must_succeed.stdout, symbolize_names: true)
  end

  EXAMPLE = "load #{File.join(Subprocess::ROOT, 'examples/leak.rb').dump}; GC.start"
  # Those that old words still point to are called held.
  ALL_BUT_FEW = (49_950..50_000).freeze

  it "finds the leak of examples/leak.rb, and says what to do" do
    core = core_of(EXAMPLE)
    text = search(core).must_succeed.stdout
    expect(text.lines.first).to match(/\A(?:49,9\d\d|50,000) blocks of 1,032 bytes \(49\.2 MiB\) that nothing points /)
    expect(text).to include("Track the next process to learn it: memintro leaks -- CMD", "searched in")
      .and include("in a core file")
    found = json(core, "--first-words")
    expect(found).to include(memintro_leaks: 1, pid: a_kind_of(Integer), allocator: "glibc", copies: 0)
    first = found[:groups].first
    expect(first).to include(verdict: "leaked", size: 1032, site: nil)
    expect(first[:count]).to be_between(ALL_BUT_FEW.begin, ALL_BUT_FEW.end)
    expect(first[:first_words].size).to eq(4)
    expect(found[:notes].join)
      .to include("lines and ages of blocks are missing: memintro's hook was not in this process")
    # Nothing else of weight is called leaked.
    expect(found[:leaked_bytes] - first[:bytes]).to be < 8_192
    page = File.join(@folder, "page.html")
    search(core, "--format", "html", "-o", page).must_succeed
    expect(File.read(page)).to include("Leaks of core", "Leaked: nothing points to them")
  end

  it "finds it where garbage was not collected, so that the array of all addresses is still there" do
    first = json(core_of("load #{File.join(Subprocess::ROOT, 'examples/leak.rb').dump}"))[:groups].first
    expect(first).to include(verdict: "leaked", size: 1032)
    expect(first[:count]).to be_between(ALL_BUT_FEW.begin, ALL_BUT_FEW.end)
  end

  it "says them where the table of blocks serves" do
    env = { **preloaded_env, "MEMINTRO_RECORDS" => "table" }
    first = json(core_of("Memintro.start\n#{EXAMPLE}", requires: %w[memintro], env: env))[:groups].first
    expect(first).to include(verdict: "leaked", size: 1024, youngest: (0..30), oldest: (1..30),
                             site: "#{Subprocess::ROOT}/examples/leak.rb:12")
    expect(first[:count]).to be_between(ALL_BUT_FEW.begin, ALL_BUT_FEW.end)
  end

  it "says the lines and ages where memintro tracked, beside threads and fibers" do
    # The fiber's block has a mapping of its own: Ruby keeps a pointer to what it freed, where a smaller one may lie.
    core = core_of(<<~RUBY, requires: %w[memintro fiddle])
      Memintro.start
      Thread.new { Fiddle.malloc(3_000).then { |block| sleep && block } }
      FIBER = Fiber.new { Fiddle.malloc(300_000).then { |block| Fiber.yield && block } }.tap(&:resume)
      KEPT = [Fiddle.malloc(3_000), Fiddle::Pointer.malloc(3_000, Fiddle::RUBY_FREE)]
      sleep 0.2
      #{EXAMPLE}
    RUBY
    found = json(core)
    line = "#{Subprocess::ROOT}/examples/leak.rb:12"
    expect(found).to include(mode: "full")
    expect(found[:groups].first).to include(verdict: "leaked", size: 1024, site: line)
    expect(found[:groups].first[:count]).to be_between(ALL_BUT_FEW.begin, ALL_BUT_FEW.end)
    expect(found[:groups].first).to include(youngest: (0..30), oldest: (1..30))
    expect(found[:groups].select { |group| [3_000, 300_000].include?(group[:size]) }).to eq([])
    expect(found[:notes].join).not_to match(/memintro's own memory was not found|are missing|damaged/)
    text = search(core).must_succeed.stdout
    expect(text.lines.first).to match(/ blocks of 1,024 bytes \(48\.8 MiB\) that nothing points to, from #{line}\.$/)
    expect(text).to include("Look at that line").and match(/^leaked: .* from #{line} aged \d+ to \d+ GCs$/)
    expect(text).to match(/^held: .* from .*program\.rb:3; held by the stack of a fiber/)
  end

  it "names places in C as the live process does, and says what was not tracked" do
    library = NativePrograms.shared_module("leaks_library.c")
    core = core_of(<<~RUBY, requires: %w[memintro fiddle])
      Memintro.start(stack_depth: 4)
      make = Fiddle.dlopen(#{library.dump})["leaks_library_make"]
      # Without Ruby's lock no line runs.
      make = Fiddle::Function.new(make, [Fiddle::TYPE_SIZE_T], Fiddle::TYPE_VOID, need_gvl: false)
      GC.disable
      200.times { make.call(333) }
      5.times { GC.start }
    RUBY
    group = json(core)[:groups].find { |row| row[:verdict] == "leaked" && row[:size] == 333 }
    expect(group[:site]).to match(/\A#{File.basename(library)}\(leaks_library_make\+0x\h+\)\z/)
    expect(group).to include(count: (180..200), youngest: 5, oldest: 5)
    stopped = json(core_of("Memintro.start\nMemintro.stop", requires: %w[memintro]))
    expect(stopped[:notes].join).to include("memintro's hook was in this process, but did not track when it ended")
  end

  it "keeps its answer where the hook's tables are damaged, or of another build, or not in the file" do
    core = core_of("Memintro.start\n#{EXAMPLE}", requires: %w[memintro])
    tool, hook = [Memintro::Paths.tool, Memintro::Paths.hook].map do |path|
      File.join(@folder, File.basename(path)).tap { |copy| FileUtils.cp(path, copy) }
    end
    # The beginning of a build-id note of 20 bytes.
    head = [4, 20, 3].pack("L<3") + "GNU\0".b
    build = File.binread(hook)[/#{Regexp.escape(head)}(.{20})/mn, 1]
    File.binwrite(hook, File.binread(hook).sub(build) { build.reverse })
    expect(why(core, tool)).to include("had another build of memintro's hook")
    garble(core)
    expect(why(core)).to include("the hook's tables are damaged")
    File.delete(core)
    # As the default, without the first pages of libraries.
    File.write("/proc/self/coredump_filter", "0x23")
    core = core_of("Memintro.start\n#{EXAMPLE}", requires: %w[memintro])
    expect(why(core)).to include("which build of memintro's hook the process had is not in the file")
  ensure
    File.write("/proc/self/coredump_filter", "0x33")
  end

  # Why there are no lines, where all the rest of the answer is there.
  def why(core, tool = Memintro::Paths.tool)
    output, status = Open3.capture2(tool, "leaks-core", core)
    expect(status).to be_success
    found = JSON.parse(output, symbolize_names: true)
    expect(found[:groups].first).to include(verdict: "leaked", size: 1032, count: ALL_BUT_FEW)
    expect(found[:groups].first[:site]).to be_nil
    found[:notes].find { |note| note.start_with?("lines and ages of blocks are missing: ") }
  end

  # Between programs and libraries there is only what the hook has put there: its tables of blocks.
  def garble(core)
    bytes = File.binread(core)
    headers, count = bytes.unpack1("Q<", offset: 32), bytes.unpack1("S<", offset: 56)
    segments = Array.new(count) { |number| bytes.unpack("L<L<Q<Q<Q<Q<", offset: headers + (56 * number)) }
    random = Random.new(1)
    segments.each do |type, _flags, offset, address, _physical, size|
      next unless type == 1 && (0x2000_0000_0000..0x5000_0000_0000).cover?(address)

      (offset...(offset + size)).step(4096) do |at|
        page = bytes.byteslice(at, 4096)
        File.binwrite(core, random.bytes(page.bytesize), at) if page.match?(/[^\0]/n)
      end
    end
  end

  it "names the class of the object that holds most, and the thread" do
    # Many, so that no old word leads to most of them.
    core = core_of(<<~RUBY)
      class Kept < Hash; end
      KEPT = Array.new(20_000) { Kept.new.merge!((1..9).to_h { |number| [number, number] }) }
    RUBY
    held = json(core)[:groups].find { |group| group[:verdict] == "anchored" }
    expect(held).to include(held_by: "20,000 Ruby objects of class Kept", owner: "Kept", owners: 20_000)
    File.delete(core)
    library = NativePrograms.shared_module("register_holder.c", flags: %w[-O1 -pthread])
    found = json(core_of(<<~RUBY, requires: %w[fiddle]))
      library = Fiddle.dlopen(#{library.dump})
      keep = Fiddle::Function.new(library["register_holder_on_stack"], [Fiddle::TYPE_SIZE_T], Fiddle::TYPE_VOID)
      pages = -> { File.read("/proc/self/statm").to_i }
      before = pages.call
      keep.call(60_000_000)
      sleep 0.01 until pages.call > before + 60_000_000 / 4096
      sleep 0.2
    RUBY
    held = found[:groups].find { |group| group[:verdict] == "anchored" }
    expect(held[:held_by]).to match(/\Athe stack of thread \d+\z/)
    expect(held[:held_by][/\d+/].to_i).to be > found[:pid]
  end

  it "calls little leaked where nothing leaks" do
    found = json(core_of('require "json"; KEPT = Array.new(50_000) { |n| { n => "x" * (n % 300) } }; JSON.dump(KEPT)'))
    expect(found[:leaked_bytes] + found[:indirectly_leaked_bytes]).to be < 32 << 10
    # Since Ruby 3.2 most of these objects have no block.
    expect(found[:scanned_blocks]).to be > (RUBY_VERSION < "3.2" ? 50_000 : 10_000)
  end

  it "gives no verdict on a file that was cut off, on another allocator, and on what is no core file" do
    core = core_of("")
    File.truncate(core, File.size(core) - 4096)
    cut = search(core)
    expect(cut.stderr).to include("#{core}: the core file was cut off (ulimit -c")
    expect(cut.status.exitstatus).to eq(1)
    none = search("/bin/sh")
    expect([none.status.exitstatus, none.stderr]).to match([1, %r{/bin/sh: this is no core file}])
    expect(search("/nowhere/core").stderr).to include("/nowhere/core: No such file")
    jemalloc = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"
    next unless File.exist?(jemalloc)

    File.delete(core)
    other = search(core_of("", env: { "LD_PRELOAD" => jemalloc }))
    expect([other.status.exitstatus, other.stderr]).to match([1, /jemalloc answered malloc.* no verdict is given/])
  end

  # Free memory of the allocator is not distinguished from used memory, so old words in it hold blocks.
  { "jemalloc" => 20_000, "tcmalloc" => 49_000 }.each do |name, least|
    it "judges the blocks that were tracked on #{name}" do
      library = NativePrograms.public_send(name) or skip "no #{name} here"
      found = json(core_of("Memintro.start\n#{EXAMPLE}", requires: %w[memintro], env: { "LD_PRELOAD" => library }))
      expect(found).to include(allocator: name, basis: "tracked", mode: "full", free_bytes: nil)
      expect(found[:groups].first).to include(verdict: "leaked", size: 1024, count: (least..50_000),
                                              site: end_with("examples/leak.rb:12"))
      expect(found[:notes].first).to include("only blocks that were tracked are judged")
    end
  end

  it "judges the blocks that were tracked where malloc's memory was written over" do
    # malloc never reads the head of the third of four adjacent blocks.
    code = <<~RUBY
      Memintro.start if ENV["TRACK"]
      KEPT = Array.new(300) { Fiddle.malloc(5_000) }.sort.freeze
      _, _, following, = KEPT.each_cons(4).find { |four| four.each_cons(2).all? { |a, b| b - a == 5_008 } }
      200.times { Fiddle.malloc(7_000) }
      Fiddle::Pointer.new(following)[-8, 8] = [12].pack("J")
    RUBY
    refused = search(core_of(code, requires: %w[memintro fiddle]))
    expect(refused.stderr).to match(/chunks cannot be read to their end.*No verdict is given/)
    FileUtils.rm(Dir[File.join(@folder, "core*")])
    found = json(core_of(code, requires: %w[memintro fiddle], env: { "TRACK" => "1" }))
    expect(found).to include(allocator: "glibc", basis: "tracked")
    expect(found[:notes].first).to match(/chunks cannot be read to their end.*only blocks that were tracked are judged/)
    counts = [5_000, 7_000].map { |size| found[:groups].find { |group| group[:size] == size }&.fetch(:count) }
    # As in the live process then, what malloc has free counts as in use, and old words in it hold some.
    expect(counts).to match([nil, (120..200)])
  end

  it "takes either a file or a process" do
    expect(run_memintro("leaks", "--core", "x", "1").stderr).to include("give either --core FILE or a PID, not 1")
    expect(run_memintro("leaks", "--core", "x", "--track", "1").stderr).to include("--track needs a PID")
    expect(run_memintro("leaks", "--core", "x", "--", "true").stderr).to include("give either --core FILE or a program")
  end

  it "ends without a word at SIGINT, and so does what it has started" do
    file = File.join(@folder, "never")
    File.mkfifo(file)
    IO.pipe do |output, input|
      pid = spawn(bare_env, RbConfig.ruby, Subprocess::EXE, "leaks", "--core", file, %i[out err] => input)
      input.close
      children = -> { Dir.glob("/proc/#{pid}/task/*/children").flat_map { |path| File.read(path).split } }
      Timeout.timeout(60) { sleep(0.02) while (@tools = children.call).empty? }
      Process.kill(:INT, pid)
      expect(Timeout.timeout(60) { Process.wait2(pid).last.exitstatus }).to eq(130)
      expect(output.read).to eq("")
      # The kernel ends them when it comes to it.
      Timeout.timeout(60) { sleep(0.02) while @tools.any? { |tool| File.exist?("/proc/#{tool}") } }
    end
  end
end
