# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/listening"
require "socket"

# The data that a listening process offers, and the life of its socket.
RSpec.describe "the control socket", :listening do
  # Sends one line, answers the header and what follows it.
  def ask(path, line)
    Timeout.timeout(60) do
      socket = UNIXSocket.new(path)
      socket.write("#{line}\n")
      header = JSON.parse(socket.gets)
      [header, socket.read(header["bytes"].to_i)]
    ensure
      socket&.close
    end
  end

  def path_of(pid) = File.join(socket_folder, "#{pid}.sock")

  it "is its owner's alone, in a folder that is its owner's alone" do
    program = start_program("Memintro.listen; puts :ready; sleep", env: { "MEMINTRO_SOCKET_FOLDER" => nil,
                                                                          "XDG_RUNTIME_DIR" => socket_folder })
    folder = File.join(socket_folder, "memintro")
    expect([File.stat(folder).mode & 0o777, File.stat(File.join(folder, "#{program.pid}.sock")).mode & 0o777])
      .to eq([0o700, 0o600])
  end

  it "is there with MEMINTRO_LISTEN=1, and without it there is no thread and no socket" do
    program = start_program("puts :ready; sleep", env: { "MEMINTRO_LISTEN" => "1" })
    expect(sockets).to eq(["#{program.pid}.sock"])
    silent = start_program("puts :ready; puts Thread.list.size; sleep")
    expect([silent.line, sockets.size]).to eq(["1", 1])
  end

  it "is not there under MEMINTRO_DISABLE=1, whether asked for by variable or in the program" do
    program = start_program("puts :ready; p Memintro.listen, Memintro.listening?; sleep",
                            env: { "MEMINTRO_LISTEN" => "1", "MEMINTRO_DISABLE" => "1" })
    expect([program.line, program.line]).to eq(%w[nil false])
    expect(sockets).to eq([])
  end

  it "goes away at exit, with stop_listening, and when a signal ends the process; not by exit!" do
    { "exit" => 0, "raise SignalException, 'TERM'" => 0, "Memintro.stop_listening; puts 1; sleep" => 0,
      "exit!" => 1 }.each do |ending, left|
      reader, writer = IO.pipe
      program = start_program("Memintro.listen; puts :ready; $stdin.gets; #{ending}", in: reader, err: File::NULL)
      reader.close
      writer.puts
      program.line
      program.wait unless ending.include?("sleep")
      expect(sockets.size).to eq(left), ending
    end
    memintro("ps").must_succeed
    expect(sockets).to eq([])
  end

  it "answers a fixed set of commands and evaluates nothing" do
    path = path_of(start_program("Memintro.listen; puts :ready; sleep").pid)
    refused = ->(line) { ask(path, line).first.values_at("ok", "error", "message") }
    expect(ask(path, '{"memintro":"0.1.0","command":"mark"}').first).to include("ok" => true, "format" => "json")
    expect(refused['{"command":"eval","arguments":{"code":"exit"}}'])
      .to match([false, "Memintro::ControlError", /has no command "eval"; it has info, start, stop,/])
    expect(refused['{"command":"instance_eval"}']).to match([false, "Memintro::ControlError", /has no command/])
    expect(refused['{"command":"top","arguments":{"code":1}}'])
      .to match([false, "Memintro::ControlError", /top takes no code; it takes n, by, /])
    expect(refused['{"command":"top","arguments":{"by":"x"}}'])
      .to match([false, "ArgumentError", /by is "x"; it must be one of/])
    expect(refused['{"command":"top"']).to match([false, "Memintro::ControlError", /the request is not JSON/])
    expect(refused['{"protocol":99,"memintro":"9.0","command":"top"}'])
      .to match([false, "Memintro::ControlError", /process runs memintro .* command is memintro 9.0 \(protocol 99\)/])
    expect(refused['{"protocol":99,"command":"top"}'].last)
      .to match(/\Athe process runs memintro \S+ \(protocol 1\), the request has protocol 99; use the command of the/)
    expect(refused['{"protocol":99,"memintro":[],"command":"top"}'].last).to include("the request has protocol 99;")
    expect(refused['{"protocol":"1","command":"top"}'])
      .to eq([false, "TypeError", "protocol is \"1\"; it must be 1, an Integer, or left out"])
    expect(refused['{"stream":1,"command":"top"}'])
      .to eq([false, "TypeError", "stream is 1; it must be true or false"])
    expect(refused["[]"]).to match([false, "Memintro::ControlError", /a JSON object/])
    expect(refused["x" * 70_000]).to match([false, "Memintro::ControlError", /longer than 65536 bytes/])
  end

  # JSON values that no argument of any command accepts.
  ODD = ["x", -1, 1.5, 10**22, false, ["x"], { "a" => 1 }].freeze
  # Arguments of the commands, and what each takes of these.
  TAKEN = {
    "top" => { n: [], by: [], older_than_gcs: [], format: [], app_root: ["x"], colour: [false] },
    "report" => { top: [], by: [], format: [], app_root: ["x", false], colour: [false] },
    "vitals" => { top: [], by: [] },
    "account" => { ruby: [false] },
    "leaks" => { gc: [false], confirm: [false], first_words: [false], seconds: [] }, "trim" => { compact: [false] },
    "snapshot" => { parts: [], settle: [false] },
    "doctor" => { format: [] }, "hunt" => { action: [] },
    "start" => { mode: [], sample_bytes: [], stop_after: [1.5], max_tracker_bytes: [], max_sites: [],
                 objects: [false] }
  }.freeze

  it "says that a number is greater than any that it reads" do
    path = path_of(start_program("Memintro.listen; puts :ready; sleep").pid)
    answer = ask(path, "{\"command\":\"top\",\"arguments\":{\"n\":1#{'0' * 3_000}}}").first
    expect(answer).to include("ok" => false, "error" => "Memintro::ControlError")
    expect(answer["message"]).to start_with("the request is not JSON: a number is too great at line 1")
  end

  it "names any wrong argument, its value and the allowed ones" do
    path = path_of(start_program("Memintro.listen; puts :ready; sleep").pid)
    wrong = TAKEN.flat_map { |command, all| all.flat_map { |name, taken| [command].product([name], ODD - taken) } }
    wrong.push(["top", :older_than_gcs, 2**32], ["top", :n, 2**63], ["report", :top, 10**22], ["snapshot", :parts, [5]])
    answers = wrong.to_h do |command, name, value|
      # Without it, top is a report.
      others = command == "top" ? { older_than_gcs: 0 } : {}
      request = { command: command, arguments: { **others, name => value } }
      [[command, name, value], ask(path, JSON.generate(request)).first]
    end
    expect(answers.values.map { |answer| answer["ok"] }.uniq).to eq([false])
    answers.each do |(_, name, value), answer|
      shown = (name == :parts && value.is_a?(Array) ? value.first : value).inspect
      expect(answer["message"]).to start_with("#{name} is #{shown[0, 97]}").and(match(/; it must be \S/))
      expect(%w[ArgumentError TypeError]).to include(answer["error"])
    end
    # As much as can be counted is no mistake.
    expect(ask(path, JSON.generate(command: "top", arguments: { n: (2**63) - 1 })).first).to include("ok" => true)
  end

  it "answers several requests on one connection" do
    path = path_of(start_program("Memintro.listen(name: 'web'); puts :ready; sleep").pid)
    Timeout.timeout(60) do
      socket = UNIXSocket.new(path)
      socket.write("{\"command\":\"info\"}\n{\"command\":\"start\"}\n")
      bodies = Array.new(2) { JSON.parse(socket.read(JSON.parse(socket.gets)["bytes"])) }
      socket.write("{\"command\":\"vitals\",\"arguments\":{\"top\":2}}\n")
      vitals = JSON.parse(socket.read(JSON.parse(socket.gets)["bytes"]))
      expect(bodies[0]).to include("name" => "web", "tracking" => false, "mode" => "off")
      expect(bodies[1]).to eq("state" => "started", "mode" => "full", "tracking" => true, "changes" => [])
      expect(vitals).to include("tracking" => true, "rss_bytes" => be > 1_000_000, "live_objects" => be > 1_000)
      expect(vitals["gc"].keys).to eq(%w[count minor major time_ms])
      socket.close
    end
  end

  it "does not let silent and slow clients keep others waiting" do
    program = start_program(<<~RUBY)
      Memintro.start
      $kept = Array.new(3_000) { |i| eval("'x' * 10_000", nil, "file\#{i}.rb", i + 1) }
      Memintro.listen
      puts :ready
      sleep
    RUBY
    path = path_of(program.pid)
    silent = Array.new(12) { UNIXSocket.new(path) }
    slow = UNIXSocket.new(path)
    slow.write("{\"command\":\"report\",\"arguments\":{\"format\":\"json\"},\"stream\":true}\n")
    expect(ask(path, '{"command":"info"}').first).to include("ok" => true)
    # The silent ones are sent away after a while.
    expect(Timeout.timeout(60) { silent.map(&:read) }).to all(eq(""))
    # The slow client gets everything, although its socket cannot hold all of it.
    header = Timeout.timeout(60) { JSON.parse(slow.gets) }
    expect(header).to include("ok" => true, "bytes" => be > 500_000)
    body = Timeout.timeout(60) { slow.read(header["bytes"]) }
    expect(JSON.parse(body)["call_sites"].count { |site| site["name"].match?(/\Afile\d+\.rb:/) }).to eq(3_000)
    [slow, *silent].each(&:close)
  end

  # Clients that connect, ask and perhaps hang up while the process is stopped.
  def ask_stopped(program, count)
    program.kill(:STOP)
    # The signal is on its way until all threads stand still.
    eventually { Dir["/proc/#{program.pid}/task/*/stat"].all? { |file| File.read(file).match?(/\) T /) } }
    clients = Array.new(count) { UNIXSocket.new(path_of(program.pid)).tap { |one| one.puts('{"command":"leaks"}') } }
    yield clients
    [clients, UNIXSocket.new(path_of(program.pid)).tap { |one| one.puts('{"command":"info"}') }]
  ensure
    program.kill(:CONT)
  end

  counting = <<~'RUBY'
    searches = 0
    Memintro.singleton_class.prepend(Module.new { define_method(:leaks) { |**how| searches += 1; super(**how) } })
    Memintro.listen
    puts :ready
    $stdin.gets
    p searches
  RUBY

  it "does no work for clients that have hung up since they asked" do
    program = start_program(counting, in: (reader, writer = IO.pipe).first)
    reader.close
    _, brief = ask_stopped(program, 20) { |clients| clients.each(&:close) }
    expect(brief.gets).to include('"ok":true')
    writer.puts
    expect(program.line).to eq("0")
  end

  it "answers what is brief after one long answer, and then the others, also of clients that write no more" do
    program = start_program("Memintro.listen; puts :ready; sleep")
    clients, brief = ask_stopped(program, 10) { |all| all.each(&:close_write) }
    expect(brief.gets).to include('"ok":true')
    expect(clients.count { |one| one.wait_readable(0) }).to be <= 2
    expect(clients.map(&:gets)).to all(include('"ok":true'))
  end

  it "answers beside 50 clients that hardly read, what is brief at once and the rest when one of them makes way" do
    path = path_of(start_program(<<~RUBY).pid)
      Memintro.start
      $kept = Array.new(6_000) { |i| eval("'x' * 10_000", nil, "file\#{i}.rb", i + 1) }
      Memintro.listen
      puts :ready
      sleep
    RUBY
    slow = Array.new(50) { UNIXSocket.new(path) }
    slow.each { |socket| socket.puts('{"command":"report","arguments":{"format":"json"},"stream":true}') }
    reading = Thread.new do
      loop { slow.each { |socket| socket.read_nonblock(100, exception: false) } && sleep(0.2) }
    end
    reading.report_on_exception = false
    [%w[info 10], %w[mark 10], %w[report 30]].each do |command, seconds|
      begun = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      expect(ask(path, "{\"command\":\"#{command}\"}").first).to include("ok" => true)
      expect(Process.clock_gettime(Process::CLOCK_MONOTONIC) - begun).to be < seconds.to_i
    end
  ensure
    reading&.kill&.join
    slow&.each(&:close)
  end

  it "is stopped without a word although its thread ends first" do
    program = start_program(read_program("control_socket/stopped.rb"), requires: %w[memintro socket])
    expect([program.line, program.line, program.line, program.wait.exitstatus]).to eq(["true", "true", "false", 0])
  end

  describe "with 1,000 clients that ask nothing" do
    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    def descriptors(pid) = Dir.children("/proc/#{pid}/fd").size
    def rss_kib(pid) = File.read("/proc/#{pid}/status")[/^VmRSS:\s+(\d+)/, 1].to_i

    # As many as wanted, in a process of their own: they need descriptors.
    def crowd(path, count, first = "")
      reader, writer = IO.pipe
      code = "require 'socket'; Process.setrlimit(:NOFILE, 4_096); $all = Array.new(Integer(ARGV[1])) { " \
             "UNIXSocket.new(ARGV[0]).tap { |s| s.write(ARGV[2]) } }; $stdout.puts; $stdout.flush; sleep"
      pid = spawn(RbConfig.ruby, "-e", code, path, count.to_s, first, out: writer, in: File::NULL)
      writer.close
      Timeout.timeout(60) { reader.gets }
      yield
    ensure
      reader.close
      Process.kill(:KILL, pid)
      Process.wait(pid)
    end

    it "answers a request within seconds, with few descriptors and little memory" do
      pid = start_program("Memintro.listen; puts :ready; sleep").pid
      path = path_of(pid)
      3.times { ask(path, '{"command":"info"}') }
      descriptors, memory = descriptors(pid), rss_kib(pid)
      most = 0
      crowd(path, 1_000) do
        watching = Thread.new { loop { most = [most, descriptors(pid)].max.tap { sleep(0.01) } } }
        begun = now
        expect(ask(path, '{"command":"info"}').first).to include("ok" => true)
        # One second for the first of them, 50 ms for each further 64.
        expect(now - begun).to be < 10
        # The crowd has gone, and a second question does not wait.
        begun = now
        expect(ask(path, '{"command":"info"}').first).to include("ok" => true)
        expect(now - begun).to be < 5
        watching.kill.join
      end
      expect(most - descriptors).to be_between(16, 65)
      expect(rss_kib(pid) - memory).to be < 8_192
      eventually { descriptors(pid) <= descriptors + 1 }
    end

    it "answers also where they have begun a question, or have had an answer" do
      path = path_of(start_program("Memintro.listen; puts :ready; sleep").pid)
      ['{"command":', "{\"command\":\"info\"}\n"].each do |first|
        crowd(path, 300, first) do
          begun = now
          expect(ask(path, '{"command":"info"}').first).to include("ok" => true)
          expect(now - begun).to be < 10
        end
      end
    end

    it "lets a client alone that asks nothing while no other client waits" do
      path = path_of(start_program("Memintro.listen; puts :ready; sleep").pid)
      socket = UNIXSocket.new(path)
      sleep(2)
      socket.write("{\"command\":\"info\"}\n")
      expect(Timeout.timeout(60) { JSON.parse(socket.gets) }).to include("ok" => true)
      socket.close
    end
  end

  it "cuts what a program calls itself" do
    path = path_of(start_program("$0 = 'x' * 100_000; Memintro.listen; puts :ready; sleep").pid)
    header, body = ask(path, '{"command":"info"}')
    expect([header["program"], JSON.parse(body)["program"]]).to eq(["#{'x' * 4_093}..."] * 2)
  end

  describe "in a forked child" do
    FORKS = {
      "fork" => "fork { sleep }",
      "a fork of a fork" => "fork { fork { sleep }; exit! }",
      "Process.daemon" => "fork { Process.daemon(true, true); sleep }"
    }.freeze

    FORKS.each do |name, code|
      it "is a new one, after #{name}" do
        program = start_program("Memintro.listen(name: 'web'); #{code}; puts :ready; sleep")
        child = eventually { (sockets - ["#{program.pid}.sock"]).first }.to_i
        info = eventually { JSON.parse(ask(path_of(child), '{"command":"info"}').last) }
        expect(info).to include("pid" => child, "name" => "web")
        expect(JSON.parse(ask(path_of(program.pid), '{"command":"info"}').last)).to include("pid" => program.pid)
        # The child holds nothing of its parent's: without the parent the old socket has no server.
        program.kill
        program.wait
        eventually { memintro("ps").must_succeed && sockets == ["#{child}.sock"] }
        Process.kill(:KILL, child)
      end
    end
  end

  # Ruby gives a native thread of memintro's that has ended to the next thread of the program.
  describe "leaves no thread of the program untracked" do
    COUNT = <<~RUBY
      def count
        before = Memintro.totals.allocations
        8.times.map { Thread.new { 200.times { Fiddle.malloc(6_000) }; sleep 0.05 } }.each(&:join)
        Memintro.totals.allocations - before >= 1_600
      end
    RUBY

    it "in a forked child, where a thread of memintro's has made the socket and ended" do
      program = start_program(<<~RUBY, requires: %w[fiddle memintro])
        #{COUNT}
        Memintro.start
        Memintro.listen
        read, write = IO.pipe
        fork { sleep(0.01) until Memintro.listening?; sleep(0.2); write.puts(count) }
        puts :ready, read.gets
      RUBY
      expect(program.line).to eq("true")
    end

    it "when it no longer listens, after a start by the socket" do
      program = start_program(<<~RUBY, requires: %w[fiddle memintro])
        #{COUNT}
        Memintro.start
        Memintro.stop
        Memintro.listen
        puts :ready
        sleep(0.01) until Memintro.tracking?
        sleep(0.2)
        Memintro.stop_listening
        puts count
      RUBY
      ask(path_of(program.pid), '{"command":"start"}')
      expect(program.line).to eq("true")
    end
  end

  # If Ruby does not know of the fork, it wakes the missing socket thread at exit, and crashes.
  it "leaves a child that C code forks alone, which works and ends as it would" do
    program = start_program(read_program("control_socket/forked_by_c.rb"))
    expect(program.line).to eq("exit 3")
    expect(sockets).to eq(["#{program.pid}.sock"])
  end

  # In a child that C code forks, threads that waited for Ruby's lock stay first in its queue for ever.
  it "leaves the queue for Ruby's lock empty when listen returns, for C code may fork then" do
    program = start_program(<<~RUBY)
      states = Array.new(20) do
        Memintro.listen
        state = Thread.list.find { |thread| thread.name == "memintro-socket" && thread.alive? }.status
        Memintro.stop_listening
        state
      end
      puts :ready, states.tally.to_a.flatten.join(" ")
      sleep
    RUBY
    expect(program.line).to eq("sleep 20")
  end

  it "is taken away by each process for itself, a forked child and its parent" do
    program = start_program(<<~RUBY, in: (reader, writer = IO.pipe).first)
      Memintro.listen
      puts :ready
      Process.wait(fork { sleep 0.01 until Memintro.listening?; puts Process.pid; $stdin.gets })
      puts :waited
      $stdin.gets
    RUBY
    reader.close
    child = program.line
    expect(sockets).to contain_exactly("#{program.pid}.sock", "#{child}.sock")
    writer.puts
    expect([program.line, sockets]).to eq(["waited", ["#{program.pid}.sock"]])
    expect(ask(path_of(program.pid), '{"command":"info"}').first).to include("ok" => true)
    writer.close
    program.wait
    expect(sockets).to eq([])
  end

  it "is served by one thread that blocks signals, sleeps while idle and does not delay the end" do
    program = start_program("Memintro.listen; puts :ready; $stdin.gets", in: (reader, writer = IO.pipe).first)
    reader.close
    task = answering_task(program.pid)
    blocked = 0
    wakes = Signal.list.fetch("VTALRM") - 1
    # Until the thread runs, all signals are blocked, or none.
    eventually { (blocked = File.read("#{task}/status")[/^SigBlk:\s+(\h+)/, 1].hex).positive? && blocked[wakes].zero? }
    signals = %w[HUP INT QUIT USR1 USR2 TERM CHLD CONT WINCH ALRM PIPE].map { |name| Signal.list.fetch(name) }
    expect(signals).to all(satisfy { |signal| blocked[signal - 1] == 1 })
    eventually { asleep?(task) }
    before = switches(task)
    sleep(0.5)
    expect(switches(task) - before).to be <= 1
    writer.close
    expect(program.wait.exitstatus).to eq(0)
  end

  it "leaves no blocked signals on the native threads that Ruby lends to the program's next ones" do
    program = start_program(<<~'RUBY', in: (reader, writer = IO.pipe).first)
      mask = -> { File.read("/proc/self/task/#{Thread.current.native_thread_id}/status")[/^SigBlk:\s+(\h+)/, 1].hex }
      masks = -> { Array.new(4) { Thread.new { mask.call.tap { sleep 0.05 } } }.map(&:value) }
      Memintro.listen
      puts :ready
      $stdin.gets
      p masks.call
      Memintro.stop_listening
      p masks.call
      $stdin.gets
    RUBY
    reader.close
    # Which takes a thread of its own.
    settling = '{"command":"snapshot","arguments":{"settle":true}}'
    expect(ask(path_of(program.pid), settling).first).to include("ok" => true)
    writer.puts
    expect([program.line, program.line]).to eq([[0, 0, 0, 0].inspect] * 2)
    writer.close
  end
end
