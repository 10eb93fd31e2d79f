# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/hostile_listener"
require_relative "../support/terminal"
require "tmpdir"

# `memintro watch` in a real pseudo-terminal, beside a process that listens.
RSpec.describe "memintro watch" do
  around do |example|
    Dir.mktmpdir("memintro-watch") do |folder|
      @folder = folder
      @targets = []
      example.run
    ensure
      @targets.each { |pid| finish(pid) }
    end
  end

  WATCHED_PROGRAM = <<~'RUBY'
    require "memintro"
    Memintro.listen(name: "watched")
    File.write(ARGV[0], "ready")
    $kept = []
    begun = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    loop do
      50.times { $kept << "x" * 20_000 }
      sleep 0.05
      $kept.clear if $kept.size > 2_000
      exit if Process.clock_gettime(Process::CLOCK_MONOTONIC) > begun + 300
    end
  RUBY

  def finish(pid)
    Process.kill(:KILL, pid)
    Process.wait(pid)
  rescue Errno::ESRCH, Errno::ECHILD
    nil
  end

  def env
    sockets = File.join(@folder, "sockets")
    Dir.mkdir(sockets, 0o700) unless Dir.exist?(sockets)
    { "MEMINTRO_SOCKET_FOLDER" => sockets }
  end

  # The socket at which this process would listen.
  def own_socket = File.join(env["MEMINTRO_SOCKET_FOLDER"], "#{Process.pid}.sock")

  # A process that listens and allocates.
  def target(code = WATCHED_PROGRAM)
    ready = File.join(@folder, "ready#{@targets.size}")
    program = File.join(@folder, "listener.rb")
    File.write(program, code)
    @targets << pid = spawn(bare_env.merge(env), RbConfig.ruby, "-I#{Subprocess::LIB}", program, ready,
                            out: File::NULL, err: File.join(@folder, "errors"))
    1_800.times { File.exist?(ready) ? break : sleep(0.05) }
    raise "the target is not ready: #{File.read(File.join(@folder, 'errors'))}" unless File.exist?(ready)

    pid
  end

  def watch(*arguments, columns: 100, rows: 30, variables: {}, &block)
    Terminal.open(RbConfig.ruby, Subprocess::EXE, "watch", *arguments.map(&:to_s), columns: columns, rows: rows,
                                                                                   env: env.merge(variables), &block)
  end

  # That the alternate screen was taken and given back, and all else too.
  def expect_restored(terminal, status: 0)
    terminal.wait_for("status #{status}, terminal as before")
    expect(terminal.raw.scan(/\e\[\?1049[hl]/)).to eq(["\e[?1049h", "\e[?1049l"])
    expect(terminal.raw.scan(/\e\[\?25[hl]/).last).to eq("\e[?25h")
  end

  it "shows RSS, GC and call sites; keys start, mark, sort and stop" do
    pid = target
    watch(pid) do |terminal|
      terminal.wait_for("pid #{pid} ").wait_for("not tracking: s starts it").wait_for(/RSS \d+\.\d MiB/)
      terminal.wait_for(/\d,?\d* runs: \d+ minor, \d+ major/).wait_for("live objects")
      terminal.type("s")
      terminal.wait_for("tracking (full)  malloc live ").wait_for(/MiB +\+\d\S+ MiB .* \S*listener\.rb:7/)
      terminal.type("m")
      terminal.wait_for("growth is counted from now on")
      terminal.type("o")
      terminal.wait_for("growth ▼")
      terminal.type("\e[C")
      terminal.wait_for("blocks ▼")
      terminal.type("x")
      terminal.wait_for("tracking stopped; the figures stay").wait_for("not tracking")
      terminal.type("q")
      expect_restored(terminal)
    end
  end

  it "draws the curve of RSS, and has the call sites in the order that was chosen" do
    pid = target(<<~'RUBY')
      require "memintro"
      require "fiddle"
      Memintro.start
      Memintro.listen
      $few = Array.new(3) { Fiddle.malloc(20_000_000) }
      $many = Array.new(10_000) { Fiddle.malloc(500) }
      100_000.times { Fiddle.free(Fiddle.malloc(100)) }
      Memintro.mark
      $new = Array.new(100) { Fiddle.malloc(20_000) }
      File.write(ARGV[0], "ready")
      sleep 300
    RUBY
    # By a column, which line of the program is the first.
    first = ->(column, line) { /^.* #{column} ▼.*\n.*listener\.rb:#{line}$/ }
    watch(pid) do |terminal|
      terminal.wait_for(/RSS \d.*\n(?:.*\n){1,12}.*│[^│]*[\u2801-\u28FF]+/)
      terminal.wait_for(first["live", 5])
      { "growth" => 9, "blocks" => 6, "allocations" => 7, "live" => 5 }.each do |column, line|
        terminal.type("o")
        terminal.wait_for(first[column, line])
      end
      terminal.wait_for(/^ *57\.2 MiB +\S+ B +\d.*listener\.rb:5$/)
      terminal.wait_for(/^ *1\.9 MiB +\+1\.9 MiB .*listener\.rb:9$/)
      terminal.type("q")
      expect_restored(terminal)
    end
  end

  # 54,000 of 60,000 blocks are freed, each a chunk of 1,008 bytes, so that pages are shared with blocks in use.
  it "shows beside RSS, on f, what malloc has free but keeps, and on f again no longer" do
    pid = target(<<~'RUBY')
      require "memintro"
      require "fiddle"
      Memintro.listen
      blocks = Array.new(60_000) { Fiddle.malloc(1000).tap { |block| Fiddle::Pointer.new(block)[0, 1000] = "x" * 1000 } }
      blocks.each_with_index { |block, n| Fiddle.free(block) unless (n % 10).zero? }
      File.write(ARGV[0], "ready")
      sleep 300
    RUBY
    without = /┌ RSS \d[\d.]+ MiB  \S+(?: \w+)? +─+┐/
    watch(pid) do |terminal|
      terminal.wait_for(without).wait_for("f free memory")
      terminal.type("f")
      terminal.wait_for(/┌ RSS \d[\d.]+ MiB  \S+ \w+  free in malloc 5[1-6]\.\d MiB ─+┐/)
      terminal.type("f")
      terminal.wait_for(without)
      terminal.type("q")
      expect_restored(terminal)
    end
  end

  it "says on f that free memory is not known, where the allocator does not tell" do
    honest = HostileListener.honest(Process.pid)
    listener = HostileListener.new(own_socket) do |command, socket|
      socket.write(HostileListener.answer(honest[command]))
    end
    watch(Process.pid) do |terminal|
      terminal.wait_for("RSS")
      terminal.type("f")
      terminal.wait_for("free in malloc: not known")
      terminal.type("q")
      expect_restored(terminal)
    end
  ensure
    listener&.close
  end

  it "marks what a sample says: ~ before a figure, its standard error below it" do
    pid = target
    run_memintro("start", pid, "--mode", "sampled", "--sample-bytes", "8192", env: env).must_succeed
    watch(pid, columns: 120) do |terminal|
      terminal.wait_for(/tracking \(sampled\)  malloc live ~[\d.]+ MiB ±[\d.]+ [KM]iB in ~[\d,]+ ±[\d,]+ blocks/)
      terminal.wait_for(/^\ *~[\d.]+\ MiB\ +~\+[\d.]+\ MiB\ +~[\d,]+\ +~[\d,]+\ +~[\d.]+\ MiB\ \S*listener\.rb:7\n
                         \ *±\S+\ [KM]iB\ +±\S+\ [KM]iB\ +±[\d,]+\ +±[\d,]+\ +±\S+\ [KM]iB$/x)
      terminal.type("q")
      expect_restored(terminal)
    end
  end

  it "tells that the process has ended, and ends with Ctrl-C" do
    pid = target
    watch(pid) do |terminal|
      terminal.wait_for("not tracking")
      finish(pid)
      terminal.wait_for("has ended, or no longer listens")
      terminal.type("m")
      terminal.wait_for("the process is gone: nothing can be asked of it")
      terminal.type("\x03")
      expect_restored(terminal)
    end
  end

  it "finds a process of the same name after a restart" do
    first = target
    watch("watched") do |terminal|
      terminal.wait_for("pid #{first} ").wait_for("not tracking")
      finish(first)
      terminal.wait_for("waiting for another of its name")
      second = target
      terminal.wait_for("pid #{second} ").wait_for("not tracking")
      terminal.type("q")
      expect_restored(terminal)
    end
  end

  it "tells why there is no answer, and goes on when there is one" do
    pid = target
    watch(pid) do |terminal|
      terminal.wait_for("not tracking")
      Process.kill(:STOP, pid)
      terminal.wait_for(/no answer for \d+ s: it is stopped \(kill -CONT continues it\)/)
      Process.kill(:CONT, pid)
      terminal.wait_for("not tracking")
      terminal.type("q")
      expect_restored(terminal)
    end
  end

  it "restores the terminal when it is ended" do
    pid = target
    watch(pid) do |terminal|
      terminal.wait_for("not tracking")
      Process.kill(:TERM, terminal.program_pid)
      expect_restored(terminal)
    end
  end

  it "says so while the terminal is too small, and draws when it has grown" do
    pid = target
    watch(pid, columns: 40, rows: 10) do |terminal|
      terminal.wait_for("The terminal is too small").wait_for("40")
      terminal.resize(90, 25)
      terminal.wait_for("RSS").wait_for("q quit")
      terminal.resize(20, 4)
      terminal.wait_for("small: 20 columns")
      terminal.type("q")
      expect_restored(terminal)
    end
  end

  it "shows nothing that a hostile listener would have the terminal do, and says what is wrong" do
    honest = HostileListener.honest(Process.pid)
    nasty = "\e]0;owned\a\e[2J\u009b31m\u202Egood"
    site = { name: nasty, live_bytes: 1, growth: 1, live_blocks: 1, allocations: 1 }
    answers = { "vitals" => { **honest["vitals"], program: nasty, sites: [site] } }
    listener = HostileListener.new(own_socket) do |command, socket|
      answer = answers.fetch(command, honest[command])
      socket.write(answer.is_a?(String) ? answer : HostileListener.answer(answer))
    end
    watch(Process.pid) do |terminal|
      terminal.wait_for("??[2J?31m?good")
      expect(terminal.raw).not_to match(/owned\a|\u009b|\u202e/)
      { "sites is 5; it must be a list" => honest["vitals"].merge(sites: 5),
        "pid is \"7\"; it must be an Integer" => { pid: "7" },
        "mode is \"\\u{1b}]0;owned" => honest["vitals"].merge(mode: nasty),
        "pid is 1; it must be #{Process.pid}" => honest["vitals"].merge(pid: 1),
        "it has 1000000000000000 bytes" => "{\"ok\":true,\"bytes\":#{10**15}}\n",
        "it does not speak memintro's protocol" => "\xFF\x00[[[\n" }.each do |said, answer|
        answers["vitals"] = answer
        terminal.wait_for(said)
      end
      answers["vitals"] = honest["vitals"].merge(live_objects: 4_711)
      terminal.wait_for("4,711 live objects")
      terminal.type("q")
      expect_restored(terminal)
    end
  ensure
    listener&.close
  end

  it "goes on where the process has hung up on it between two questions" do
    honest = HostileListener.honest(Process.pid)
    asked = 0
    # Each connection has one answer.
    listener = HostileListener.new(own_socket) do |command, socket|
      socket.write(HostileListener.answer(honest[command].merge(live_objects: 1_000 + (asked += 1))))
    end
    watch(Process.pid, "--every", "0.1") do |terminal|
      terminal.wait_for("1,020 live objects")
      expect(terminal.raw).not_to include("has ended")
      terminal.type("q")
      expect_restored(terminal)
    end
  ensure
    listener&.close
  end

  it "uses colours, but none under NO_COLOR" do
    pid = target
    coloured, plain = [{}, { "NO_COLOR" => "1" }].map do |variables|
      raw = nil
      watch(pid, variables: variables) do |terminal|
        terminal.wait_for(/RSS \d+\.\d MiB/).wait_for("q quit")
        terminal.type("q")
        expect_restored(terminal)
        raw = terminal.raw
      end
      raw
    end
    colour = /\e\[(?:[\d;]*;)?(?:3[0-8]|4[0-8]|9\d|10\d)(?:;[\d;]*)?m/
    expect(coloured).to match(colour)
    expect(plain).not_to match(colour)
  end

  it "wants a terminal and a process that listens, and says so before it takes the screen" do
    result = run_memintro("watch", "1", env: env)
    expect([result.status.exitstatus, result.stdout]).to eq([1, ""])
    expect(result.stderr).to start_with("memintro: watch needs a terminal as standard input and output; ")
    watch(Process.pid) do |terminal|
      terminal.wait_for("restart it with MEMINTRO_LISTEN=1").wait_for("status 1, terminal as before")
      expect(terminal.raw).not_to include("\e[?1049h")
    end
  end
end
