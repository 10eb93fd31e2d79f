# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/native_programs"
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
  ALL_BUT_FEW = (49_990..50_000).freeze

  it "finds the leak of examples/leak.rb, and says what to do" do
    core = core_of(EXAMPLE)
    text = search(core).must_succeed.stdout
    expect(text.lines.first).to match(/\A(?:49,9\d\d|50,000) blocks of 1,032 bytes \(49\.2 MiB\) that nothing points /)
    expect(text).to include("Track the next process to learn them: memintro leaks -- CMD", "searched in")
      .and include("in a core file")
    found = json(core, "--first-words")
    expect(found).to include(memintro_leaks: 1, pid: a_kind_of(Integer), allocator: "glibc", copies: 0)
    first = found[:groups].first
    expect(first).to include(verdict: "leaked", size: 1032, site: nil)
    expect(first[:count]).to be_between(ALL_BUT_FEW.begin, ALL_BUT_FEW.end)
    expect(first[:first_words].size).to eq(4)
    expect(found[:notes].join).to include("lines and ages of blocks are missing: memintro was not in this process")
    # Nothing else of weight is called leaked.
    expect(found[:leaked_bytes] - first[:bytes]).to be < 8_192
    page = File.join(@folder, "page.html")
    search(core, "--format", "html", "-o", page).must_succeed
    expect(File.read(page)).to include("Leaks of core", "Leaked: nothing points to them")
  end

  it "finds it where nobody has collected garbage, so that the array of all addresses is still there" do
    first = json(core_of("load #{File.join(Subprocess::ROOT, 'examples/leak.rb').dump}"))[:groups].first
    expect(first).to include(verdict: "leaked", size: 1032)
    expect(first[:count]).to be_between(ALL_BUT_FEW.begin, ALL_BUT_FEW.end)
  end

  it "finds it where memintro tracked, beside threads and fibers" do
    core = core_of(<<~RUBY, requires: %w[memintro fiddle])
      Memintro.start
      Thread.new { Fiddle.malloc(3_000).then { |block| sleep && block } }
      FIBER = Fiber.new { Fiddle.malloc(3_000).then { |block| Fiber.yield && block } }.tap(&:resume)
      KEPT = [Fiddle.malloc(3_000), Fiddle::Pointer.malloc(3_000, Fiddle::RUBY_FREE)]
      sleep 0.2
      #{EXAMPLE}
    RUBY
    found = json(core)
    expect(found[:groups].first).to include(verdict: "leaked", size: 1032)
    expect(found[:groups].first[:count]).to be_between(ALL_BUT_FEW.begin, ALL_BUT_FEW.end)
    expect(found[:groups].select { |group| group[:size] == 3_000 }).to eq([])
    expect(found[:notes].join).not_to include("memintro's own memory was not found")
    expect(found[:notes].join).to include("lines and ages of blocks are missing: memintro's hook was in this process")
  end

  it "names the class of the object that holds most, and the thread" do
    # Many, so that no old word leads to most of them.
    core = core_of(<<~RUBY)
      class Kept < Hash; end
      KEPT = Array.new(20_000) { Kept.new.merge!((1..9).to_h { |number| [number, number] }) }
    RUBY
    held = json(core)[:groups].find { |group| group[:verdict] == "anchored" }
    expect(held[:held_by]).to start_with("a Ruby object of class Kept (")
    File.delete(core)
    library = NativePrograms.shared_module("register_holder.c", flags: %w[-O1 -pthread])
    found = json(core_of(<<~RUBY, requires: %w[fiddle]))
      library = Fiddle.dlopen(#{library.dump})
      keep = Fiddle::Function.new(library["register_holder_on_stack"], [Fiddle::TYPE_SIZE_T], Fiddle::TYPE_VOID)
      keep.call(60_000_000)
      sleep 0.2
    RUBY
    held = found[:groups].find { |group| group[:verdict] == "anchored" }
    expect(held[:held_by]).to match(/\Athe stack of thread \d+ \(/)
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

  it "takes either a file or a process" do
    expect(run_memintro("leaks", "--core", "x", "1").stderr).to include("give either --core FILE or a PID, not 1")
    expect(run_memintro("leaks", "--core", "x", "--track", "1").stderr).to include("--track needs a PID")
    expect(run_memintro("leaks", "--core", "x", "--", "true").stderr).to include("give either --core FILE or a program")
  end
end
