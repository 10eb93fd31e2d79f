# frozen_string_literal: true

require_relative "../spec_helper"

# Which C functions led from a line of Ruby to malloc.
RSpec.describe "native callers", :listening do
  SOURCE = File.join(NativePrograms::MODULES, "native_leaks.c")

  before { skip "only on x86-64" unless RUBY_PLATFORM.start_with?("x86_64") }

  def leaks
    library = shared_module("leaks_library.c", flags: ["-fomit-frame-pointer"])
    extension("native_leaks.c", libraries: [library], flags: ["-fomit-frame-pointer"])
  end

  def told(name, requires: ["memintro"], **options)
    run_ruby("native_callers.rb", leaks, name, requires: requires, **options)
      .must_succeed.json
  end

  # File and line of the first text like this in a function of the fixture.
  def c_line(function, text, file = SOURCE)
    lines = File.readlines(file)
    from = lines.index { |line| line.match?(/\b#{function}\(.*\)$/) }
    "#{file}:#{from + lines.drop(from).index { |line| line.include?(text) } + 1}"
  end

  # The first native caller, without what depends on chance.
  def first_of(told) = told[:callers].first.values_at(:frames, :location)

  def frames(*names) = match(names.map { |name| match(/\A#{Regexp.escape(name)}\+0x\h+\)\z/) })

  NESTED = ["native_leaks.so(nested_inner", "native_leaks.so(nested_outer"].freeze

  %i[live preloaded].each do |way|
    it "name each kind of leak, with its line of C, when #{way}" do
      kinds = told("kinds", way: way)
      made = File.join(NativePrograms::MODULES, "leaks_library.c")
      { direct: "malloc(", xmalloc: "= ruby_xmalloc(", aligned: "malloc(" }.each do |kind, text|
        expect(first_of(kinds[kind])).to match [frames("native_leaks.so(leaks_#{kind}"), c_line("leaks_#{kind}", text)]
      end
      expect(first_of(kinds[:nested])).to match [frames(*NESTED), c_line("nested_inner", "malloc(")]
      expect(first_of(kinds[:library]))
        .to match [frames("libleaks_library-lazy.so(leaks_library_make", "native_leaks.so(leaks_library"),
                   c_line("leaks_library_make", "calloc(", made)]
      kinds.each_value do |kind|
        expect(kind[:samples]).to be_between(8, 80)
        expect(kind[:callers].first).to include(live_share: be_between(0.8, 1.0), share: be_between(0.3, 1.0))
      end
    end
  end

  it "tell the function that leaks from one that allocates nine times as often" do
    # Of a hundred samples half of the weight lies in the last eight. So a tenth is told as less than 0.01 in 3 of 100
    # runs, and as less than 0.0003 in 5 of 10,000.
    kept, temporary = told("mixed")[:mixed][:callers]
    expect(kept[:frames]).to(frames("native_leaks.so(kept", "native_leaks.so(leaks_mixed"))
    expect(kept).to include(live_share: be_between(0.99, 1.0), share: be_between(0.0002, 0.5))
    expect(temporary[:frames]).to(frames("native_leaks.so(temporary", "native_leaks.so(leaks_mixed"))
    expect(temporary).to include(live_share: be < 0.01, share: be_between(0.5, 0.9998))
  end

  it "begin with the one that has most bytes where there are many, and sum up the others by library" do
    told = run_ruby(nil, extension("many_ways.c"), code: <<~'RUBY', requires: %w[memintro json]).must_succeed.json
      require ARGV[0]
      Memintro.start
      # None of the first two hundred is large, then every other one.
      20_000.times do |i|
        number, size = i > 200 && i.even? ? [40, 6_400] : [i % 40, 64]
        ManyWays.call(number, size)
      end
      site = Memintro.top(1).first
      puts JSON.generate(samples: site.native_caller_samples, callers: site.native_callers.map(&:to_h))
    RUBY
    first, *others = told[:callers]
    expect(first[:frames].first).to match(/\Amany_ways\.so\(way_large\+0x/)
    expect(first[:live_share]).to be > 0.9
    sum = others.find { |caller| caller[:frames] == ["many_ways.so (other ways)"] }
    expect(sum[:samples]).to be > others.map { |caller| caller[:samples] }.max / 2
    # The others are of Ruby itself.
    expect(told[:samples] - told[:callers].sum { |caller| caller[:samples] }).to be_between(0, 5)
    expect(others.map { |caller| caller[:frames] }).not_to include([])
  end

  it "are missing for Ruby's own allocations, even in a block that C has called" do
    expect(told("ruby")[:ruby]).to eq(samples: 0, text: [], callers: [])
  end

  # The first allocations of each line are due as well, and Ruby's own code asks for all of these blocks.
  it "are sampled of a line that leaks within milliseconds after two thousand lines have run once" do
    found = run_ruby(code: <<~'RUBY', requires: %w[json fiddle memintro]).must_succeed.json
      Memintro.start
      lines = Array.new(2000) { |n| "KEPT << ('x' * (100 + #{n}))" }
      KEPT = []
      eval(lines.join("\n"))
      leaked = Array.new(20_000) { Fiddle.malloc(1024) }
      leak = Memintro.top(1).first
      puts JSON.generate(samples: leak.native_caller_samples, frames: leak.native_callers.first&.frames)
    RUBY
    expect(found[:samples]).to be_between(20, 150)
    expect(found[:frames]).to match [start_with("fiddle.so")]
  end

  it "are found in fibers, in threads, on the stack of a signal handler, with objects and with stacks" do
    %w[fibers threads objects stacks].each do |name|
      found = told(name)
      expect(first_of(found[name.to_sym])).to match([frames(*NESTED), c_line("nested_inner", "malloc(")]), name
      expect(found.fetch(:"of stacks", 0)).to eq(0)
    end
    handled = first_of(told("handler")[:handler])
    expect(handled).to match [frames("native_leaks.so(handler"), c_line("handler", "malloc(")]
  end

  it "go on in a forked child" do
    found = told("fork")
    direct = frames("native_leaks.so(leaks_direct")
    expect(found).to include(status: 0)
    expect([found[:parent], found[:child][:fork]].map { |one| one[:callers].first[:frames] }).to match [direct, direct]
    expect(found[:child][:child][:callers].first[:frames])
      .to(frames("libleaks_library-lazy.so(leaks_library_make", "native_leaks.so(leaks_library"))
  end

  it "go on in sampled mode, and are forgotten with all other figures" do
    expect(told("sampled")[:sampled][:callers].first[:frames]).to(frames("native_leaks.so(leaks_direct"))
    expect(told("clear")).to include(before: include(callers: be_any), after: nil)
  end

  it "are sampled as the program wants it, in either mode, and switched on and off while it runs" do
    %w[full sampled].each do |mode|
      found = told("setting", env: { "MODE" => mode })
      off, on, hidden, off_again, on_again = found[:counts]
      expect([off, hidden, off_again, found[:mode]]).to eq([0, 0, 0, mode])
      expect([on, on_again]).to all(be >= 1), mode
    end
  end

  it "are switched by flags and variables: of programs with Ruby, in each mode, and without" do
    code = "require #{leaks.dump}; 300.times { NativeLeaks.direct(60_000) }"
    via = lambda do |*flags, env: {}|
      run_memintro("run", *flags, "--", RbConfig.ruby, "-e", code, env: env)
        .must_succeed.stderr.include?("via native_leaks.so(leaks_direct")
    end
    expect([via.call, via.call("--no-native-callers"), via.call(env: { "MEMINTRO_NATIVE_CALLERS" => "0" })])
      .to eq([true, false, false])
    sampled = %w[--mode sampled --sample-bytes 65536]
    expect([via.call(*sampled), via.call(*sampled, "--native-callers")]).to eq([false, true])
    Dir.mktmpdir do |folder|
      run_memintro("run", "--native-children", "--no-native-callers", "--report", File.join(folder, "%p"), "--",
                   program("native_stacks.c"), "exit")
      text = run_memintro("report", Dir[File.join(folder, "*")].first).must_succeed.stdout
      expect(text).to match(/make_block|native_stacks/).and(match(/\A(?!.* via )/m))
    end
  end

  it "are in snapshots, and the same when these are saved and loaded" do
    answer = told("snapshots")
    live, loaded, later = answer[:found]
    expect(live.first[:frames]).to(frames(*NESTED))
    expect(loaded).to eq(live)
    expect(later.first[:frames]).to(frames(*NESTED))
    expect(answer[:refused]).to match(/native_callers\.callers\[0\]\.frames is 7; it must be a list of at most 16/)
  end

  # Only stacks whose end is known are read beyond a page.
  it "know where the stacks of threads and fibers end" do
    result = run_ruby(code: <<~'RUBY', requires: %w[memintro json])
      Memintro.start
      bytes = -> { Memintro::Native.machine_stack_bytes }
      deep = ->(left) { left.zero? ? bytes.call : [0].map { deep.call(left - 1) }[0] }
      many = Array.new(200) { Fiber.new { bytes.call } }
      puts JSON.generate(main: bytes.call, thread: Thread.new(&bytes).value, fiber: Fiber.new(&bytes).resume,
                         in_thread: Thread.new { Fiber.new { Fiber.new(&bytes).resume }.resume }.value,
                         deep: [deep.call(0), deep.call(100), Fiber.new { deep.call(100) }.resume],
                         many: many.map(&:resume).uniq, after: bytes.call)
    RUBY
    found = result.must_succeed.json
    expect(found.values_at(:main, :thread, :fiber, :in_thread, :after)).to all(be_between(200, 65_536))
    shallow, deep, in_fiber = found[:deep]
    expect(deep - shallow).to be_between(10_000, 1 << 20)
    expect(in_fiber).to be_between(10_000, 256 * 1024)
    expect(found[:many]).to all(be_between(200, 16_384))
  end

  it "are found under GC.stress", :vm do
    expect(first_of(told("kinds")[:nested])).to match [frames(*NESTED), c_line("nested_inner", "malloc(")]
  end

  it "are in the text below their line, in JSON, and are read back from it" do
    found = told("report")
    _, via = found[:files][:text].lines.each_cons(2).find { |line, _| line.match?(/native_callers\.rb:\d+$/) }
    nested = 'native_leaks\.so\(nested_outer\+0x\h+\) → native_leaks\.so\(nested_inner\+0x\h+\)'
    shares = /~\d+% of live bytes, ~\d+% of allocations \(\d+ of \d+ samples\)/
    expect(via).to match(/\A    via #{nested} \(#{c_line("nested_inner", "malloc(")}\): #{shares}$/)
    expect(found[:files][:text]).to include('note: "via" names the C functions that asked malloc')
    site = JSON.parse(found[:files][:json])["call_sites"].first
    expect(site["native_callers"]).to include("samples" => be > 8, "live_samples" => be > 5)
    expect(found[:again].first).to match(/\A#{nested} /)
  end

  it "are shown by the command for a running process" do
    program = start_program(<<~RUBY, leaks)
      require ARGV.fetch(0)
      Memintro.start
      Memintro.listen
      500.times { NativeLeaks.nested(2_000) }
      puts "ready"
      sleep
    RUBY
    %w[report top].each do |command|
      shown = run_memintro(command, program.pid, env: listening_env).must_succeed.stdout
      frames = %w[outer inner].map { |name| "native_leaks\\.so\\(nested_#{name}\\+0x\\h+\\)" }
      expect(shown).to match(/    via #{frames.join(" → ")}/), shown
    end
  end

  it "name libxml2 behind nokogiri" do
    skip "nokogiri is not installed" unless Gem::Specification.any? { |gem| gem.name == "nokogiri" }
    found = run_ruby(code: <<~'RUBY', requires: %w[memintro nokogiri json]).must_succeed.json
      document = Nokogiri::XML("<a/>")
      Memintro.start
      kept = Array.new(5_000) { |i| Nokogiri::XML::Node.new("leak#{i % 7}", document) }
      puts JSON.generate(kept.size => Memintro.top(1).first.native_callers.map(&:path))
    RUBY
    paths = found.values.first
    expect(paths.join("\n")).to match(/^nokogiri\.so\(\+0x\h+\) → libxml2\.so\.2\(xmlNewNode\+0x\h+\)/)
  end

  it "keep the names of a library that was unloaded" do
    library = shared_module("leaks_library.c")
    result = run_ruby(code: UNLOADED, env: { "LIBRARY" => library }, requires: %w[memintro json fiddle])
    loaded, *names = result.must_succeed.json
    expect(loaded).to be false
    expect(names.first).to match(/\Alibleaks_library-lazy\.so\(leaks_library_make\+0x\h+\)\z/)
  end

  # A program without Ruby: its raw dump has a stack for each site.
  it "are the C functions that led to each site of a program without Ruby, however it ends" do
    program = program("native_stacks.c")
    source = File.join(NativePrograms::PROGRAMS, "native_stacks.c")
    Dir.mktmpdir do |folder|
      %w[exit abort].each do |ending|
        run_memintro("run", "--native-children", "--report", File.join(folder, "#{ending}.%p"), "--", program, ending)
        file = Dir[File.join(folder, "#{ending}.*")].first
        top = JSON.parse(run_memintro("report", "--format", "json", file).must_succeed.stdout)["call_sites"].first
        caller = top.fetch("native_callers").fetch("callers").first
        name = File.basename(program)
        expect(caller["frames"].first(4))
          .to(frames(*%w[make_block third second first].map { |function| "#{name}(#{function}" }))
        expect(caller["location"]).to eq c_line("make_block", "malloc(", source)
        expect(run_memintro("report", file).must_succeed.stdout).to match(/ via .* → #{name}\(make_block\+0x\h+\)/)
        expect(File.binread(file)).not_to include("secret text on the stack")
      end
    end
  end

  # Fiddle's function is freed with its library, so nothing keeps it loaded.
  UNLOADED = <<~'RUBY'
    Memintro.start
    path = ENV.fetch("LIBRARY")
    20.times do |i|
      handle = Fiddle.dlopen(path)
      function = Fiddle::Function.new(handle["leaks_library_make"], [Fiddle::TYPE_SIZE_T], Fiddle::TYPE_VOIDP)
      20.times { function.call(50_000 + i) }
      Memintro.top(1) if i.even?
      handle.close
    end
    loaded = File.read("/proc/self/maps").include?(path)
    puts JSON.generate([loaded, *Memintro.top(1).first.native_callers.map(&:name)])
  RUBY

  # A filter of system calls that ends the process for process_vm_readv, as systemd's @system-service would, and for
  # rt_sigprocmask with an unknown argument.
  FILTERED = <<~'RUBY'
    libc = Fiddle.dlopen(nil)
    long = Fiddle::TYPE_LONG
    prctl = Fiddle::Function.new(libc["prctl"], [long] * 5, Fiddle::TYPE_INT)
    code = [[0x20, 0, 0, 0], [0x15, 0, 1, 310], [0x06, 0, 0, 0x80000000],
            [0x15, 0, 3, 14], [0x20, 0, 0, 16], [0x15, 0, 1, 0xffffffff], [0x06, 0, 0, 0x00050001],
            [0x06, 0, 0, 0x7fff0000]]
    bytes = Fiddle::Pointer.to_ptr(code.map { |one| one.pack("SCCL") }.join)
    filter = Fiddle::Pointer.to_ptr([code.size, bytes.to_i].pack("Sx6Q"))
    require ARGV.fetch(0)
    Memintro.start
    prctl.call(38, 1, 0, 0, 0).zero? or abort "no new privileges"
    prctl.call(22, 2, filter.to_i, 0, 0).zero? or abort "no filter"
    300.times { NativeLeaks.direct(3_000) }
    Thread.new { 300.times { NativeLeaks.direct(3_000) } }.join
    puts JSON.generate(Memintro.top(2).map { |site| site.native_callers.map(&:name) })
  RUBY

  it "survive filters that forbid to look at memory through the kernel, and name what one page tells" do
    code = FILTERED.sub("ARGV.fetch(0)", leaks.dump)
    result = run_ruby(code: code, requires: %w[memintro json fiddle]).must_succeed
    result.json.each do |names|
      expect(names).to all match(/\Anative_leaks\.so\(leaks_direct\+0x\h+\)\z/)
    end
    expect(result.json.flatten.size).to be_between(1, 2)
  end

  # Everything at once: threads that end, signals, forks, readings.
  STORM = Subprocess.read_program("native_callers/storm.rb")

  it "survive a storm of threads, signals and forks, and name only what is there" do
    code = "require #{leaks.dump}\n#{STORM}"
    statuses, names = run_ruby(code: code, requires: %w[memintro json]).must_succeed.json
    expect(statuses).to eq("0": 25)
    expect(names).to include(match(/\Anative_leaks\.so\(nested_inner/), match(/leaks_library_make/))
    ours = /\A(?:native_leaks|libleaks_library-lazy|[\w.+-]+)\.so(?:\.[\d.]+)?\(/
    expect(names.reject { |name| name == "(other)" }).to all match(ours)
  end
end
