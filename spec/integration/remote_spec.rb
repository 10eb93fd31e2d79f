# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/listening"
require "socket"

# `memintro COMMAND PID`, and what it says where a process cannot be asked.
RSpec.describe "asking a running process", :listening do
  LISTENER = "Memintro.listen; puts :ready; sleep"
  LEAK = "Memintro.listen; kept = []; puts :ready; loop { kept << 'x' * 10_000; sleep 0.01 }"
  MASTER = <<~RUBY
    Memintro.listen(name: "shop")
    $0 = "shop: master"
    pids = Array.new(2) do |i|
      fork { $0 = "shop: worker \#{i}"; kept = []; loop { kept << "x" * 10_000; sleep 0.01 } }
    end
    puts :ready
    sleep
  RUBY

  # Whether the process's thread that answers sleeps, and has slept for a while.
  def at_rest?(pid)
    task = answering_task(pid)
    before = switches(task)
    sleep(0.2)
    asleep?(task) && switches(task) == before
  end

  def path_of(pid) = File.join(socket_folder, "#{pid}.sock")

  # The output of a command that must not.
  def said(*arguments) = memintro(*arguments).must_succeed.stdout

  # The error of a command that must fail.
  def complaint(*arguments, **options)
    result = memintro(*arguments, **options)
    expect([result.status.exitstatus, result.stdout]).to eq([1, ""]), result.inspect
    result.stderr
  end

  it "starts, marks, shows, collects, clears and stops" do
    pid = start_program(LEAK).pid
    who = "process #{pid} (-e)"
    expect(said("start", pid)).to eq("#{who} tracks its allocations now (full mode)\n")
    expect(said("start", pid)).to eq("#{who} tracked already; nothing changed (full mode)\n")
    expect(said("start", pid, "--max-sites", "500"))
      .to eq("#{who} restarted tracking with the new settings (full mode)\n")
    top = eventually { said("top", pid).then { |text| text if text.match?(/-e:1$/) } }
    expect(top).to match(/^memintro .*: pid #{pid}, ruby #{RUBY_VERSION}, full mode, started live/)
    # The server's own allocations are in no figure.
    expect(top).not_to include("control/")
    report = JSON.parse(said("report", pid, "--json"))
    expect(report["call_sites"].find { |site| site["name"] == "-e:1" }["live_bytes"]).to be >= 10_000
    expect(said("top", pid, "--older-than-gcs", "1")).to include("outlived 1 collection,")
    expect(said("mark", pid)).to match(/\A#{Regexp.escape(who)} counts growth from now on: live /)
    expect(said("gc", pid)).to match(/collected its garbage in [\d.]+ ms: .* -> .* live objects, RSS/)
    expect(said("doctor", pid)).to include("allocator")
    expect(said("clear", pid)).to eq("#{who} cleared its figures; it still tracks\n")
    expect(said("stop", pid)).to start_with("#{who} stopped tracking; live ")
    expect(JSON.parse(said("stop", pid, "--json"))).to include("pid" => pid, "state" => "unchanged")
  end

  it "does what it says when it marks, clears and collects" do
    pid = start_program(<<~RUBY).pid
      Memintro.start
      Memintro.listen
      $kept = Array.new(1_000) { "x" * 10_000 }
      puts :ready
      sleep
    RUBY
    site = lambda do |by|
      JSON.parse(said("top", pid, "--by", by, "--top", "all", "--json"))["call_sites"].find { _1["name"] == "-e:3" }
    end
    expect(site["growth"]["growth"]).to be >= 10_000_000
    said("mark", pid)
    expect(site["live_bytes"]).to include("growth" => 0, "live_bytes" => be >= 10_000_000)
    runs = lambda do
      require "memintro/control/client"
      Memintro::Control::Client.new(pid, path_of(pid), patience: 60).ask_json("vitals")["gc"]["major"]
    end
    before = runs.call
    collected = JSON.parse(said("gc", pid, "--json"))
    expect(runs.call - before).to eq(1)
    expect(collected).to include("live_objects" => be < collected["live_objects_before"], "took_ms" => be_positive)
    said("clear", pid)
    expect(site["live_bytes"]).to be_nil
    expect(said("top", pid)).not_to include("Tracking is off")
  end

  it "is asked by name, with all workers, and sums them up" do
    pid = start_program(MASTER).pid
    eventually { sockets.size == 3 }
    listed = eventually { said("ps").then { |text| text if text.scan("worker").size == 2 } }
    expect(listed.lines.first.split).to eq(%w[PID PARENT RSS TRACKING MEMINTRO NAME PROGRAM])
    expect(listed).to match(/^ *#{pid} .* off  +\S+  shop  shop: master$/)
    expect(said("start", "shop", "--workers").scan("tracks its allocations now").size).to eq(3)
    workers = sockets.map(&:to_i) - [pid]
    eventually do
      # The sum is taken between two looks at each worker, which only grow.
      live = lambda do
        workers.sum do |worker|
          JSON.parse(said("report", worker, "--json"))["call_sites"]
              .select { |site| site["name"] == "-e:4" }.sum { |site| site["live_bytes"] }
        end
      end
      before = live.call
      sum = JSON.parse(said("top", "shop", "--workers", "--json"))["call_sites"]
                .find { |site| site["name"] == "-e:4" }
      before.positive? && sum && sum["live_bytes"].between?(before, live.call)
    end
    text = said("top", pid, "--workers", "--top", "3")
    expect(text).to match(/^ *PID +RSS +live +blocks +PROGRAM$/).and include("shop: worker 0", "sum of these processes")
    expect(said("stop", "shop: worker 1")).to include("(shop: worker 1) stopped tracking")
  end

  it "asks the others where one of several is not there" do
    program = start_program("Memintro.start; Memintro.listen(name: 'leaky'); puts :ready; sleep")
    gone = start_program("puts :ready")
    gone.wait
    absent = "memintro: there is no process #{gone.pid}\n"
    [["mark", "leaky", gone.pid], ["mark", gone.pid, "leaky", "--workers"]].each do |arguments|
      result = memintro(*arguments)
      expect([result.status.exitstatus, result.stderr]).to eq([1, absent])
      expect(result.stdout).to start_with("process #{program.pid} (-e) counts growth from now on: ")
    end
    result = memintro("top", gone.pid, "leaky", "--workers", "--json")
    expect([result.status.exitstatus, result.stderr]).to eq([1, absent])
    expect(JSON.parse(result.stdout).dig("process", "pid")).to eq(program.pid)
    expect(complaint("mark", gone.pid, "nobody"))
      .to match(/\A#{absent}memintro: no process that listens is called "nobody"; .*\n.*none of these 2 processes/)
  end

  it "lists the processes that it could take where none is given" do
    title = 'Process.setproctitle("web: \e[31mred\nline")'
    named = start_program("#{title}; Memintro.listen(name: 'shop'); puts :ready; sleep")
    silent = start_program("$0 = 'quiet'; puts :ready; sleep")
    [%w[top], %w[account], %w[snapshot], %w[report], %w[diff], %w[rss], %w[watch]].each do |command|
      result = memintro(*command)
      expect([result.status.exitstatus, result.stdout]).to eq([2, ""])
      expect(result.stderr).to match(/\Amemintro: give .*:\n\n *PID +RSS +LISTENS +NAME +PROGRAM\n/)
      # Those that listen come first.
      expect(result.stderr.lines[3])
        .to match(/\A *#{named.pid} +[\d.]+ MiB +yes +shop +web: \\x1B\[31mred\\x0Aline\n\z/)
      expect(result.stderr).to match(/^ *#{silent.pid} +[\d.]+ MiB +no +- +quiet$/).or match(/^\d+ more$/)
    end
  end

  it "calls a process by the title that Process.setproctitle has given it" do
    reader, writer = IO.pipe
    program = start_program(<<~RUBY, in: reader)
      Memintro.listen
      puts :ready
      $stdin.gets
      Process.setproctitle("mill: busy")
      puts 1
      sleep
    RUBY
    called = -> { memintro("ps").must_succeed.stdout.lines.last[/\S+(?: busy)?$/] }
    before = called.call
    writer.puts
    program.line
    expect([before, called.call]).to eq(["-e", "mill: busy"])
    expect(memintro("gc", "mill").must_succeed.stdout).to start_with("process #{program.pid} (mill: busy) collected")
  ensure
    [reader, writer].compact.each(&:close)
  end

  it "answers with a snapshot" do
    pid = start_program(LISTENER).pid
    require "memintro/control/client"
    client = Memintro::Control::Client.new(pid, path_of(pid), patience: 60)
    text = client.ask("snapshot", { parts: ["classes"], settle: true })
    expect(JSON.parse(text).to_s).to include("String")
    expect { client.ask("snapshot", { parts: ["eval"] }) }
      .to raise_error(Memintro::ControlError, /process #{pid} answers: parts is "eval"; it must be one of/)
  end

  it "is looked into: snapshot, iseqs, histogram, and what grew within some seconds" do
    program = start_program(<<~RUBY)
      class Grain; end
      Memintro.listen(name: "mill")
      kept = Array.new(10) { Grain.new }
      puts :ready
      $stdin.gets
      kept.concat(Array.new(5_000) { Grain.new })
      puts :grown
      sleep
    RUBY
    file = File.join(socket_folder, "saved.json")
    memintro("snapshot", "mill", "--format", "json", "-o", file).must_succeed
    expect(said("histogram", program.pid, "--top", "all")).to match(/Grain/)
    expect(said("histogram", file, "--top", "all")).to match(/Grain/)
    expect(said("iseqs", "mill")).to match(/ \d+  \S*rubygems/)
    # Nothing happens in it; what two looks leave behind is no growth.
    quiet = JSON.parse(said("diff", "mill", "--for", "0.2", "--format", "json"))
    rows = quiet.to_s.scan(/"name"=>"(?:String|Array|Hash|Grain)"[^}]*/)
    expect(rows.join).not_to include("Grain")
    grown = rows.map { |row| row[/"count_growth"=>(-?\d+)/, 1].to_i }
    expect(grown).to all(be_between(-200, 200))
    expect(complaint("diff", "--for", "1", "nobody")).to match(/no process that listens is called "nobody"/)
  end

  it "says which line grows within some seconds" do
    start_program(<<~RUBY)
      Memintro.start
      Memintro.listen(name: "leaky")
      kept = []
      Thread.new do
        loop do
          sleep 0.01
          kept << "x" * 100_000
        end
      end
      puts :ready
      sleep
    RUBY
    expect(said("diff", "leaky", "--for", "1", "--timeout", "50"))
      .to match(/^Malloc \+[\d.]+ [KM]iB in \d+, (?:nearly )?all at -e:7\.$/)
    sites = JSON.parse(said("diff", "leaky", "--for", "1", "--json")).dig("sections", "call_sites")
    line = sites.find { |site| site["name"] == "-e:7" }
    texts, rest = line["growth"].divmod(100_001)
    # The list also grows there, and Ruby's heap may.
    expect([texts, rest]).to match([be_positive, be < 30_000])
    expect(line["count_growth"]).to be_between(texts, texts + 30)
  end

  it "switches the mode, and keeps what was collected" do
    pid = start_program(LEAK).pid
    expect(said("start", pid)).to end_with(" tracks its allocations now (full mode)\n")
    expect(said("start", pid)).to end_with(" tracked already; nothing changed (full mode)\n")
    expect(said("start", pid, "--mode", "sampled"))
      .to end_with(" changed the mode, and kept its figures; it no longer finds native callers (sampled mode)\n")
    expect(JSON.parse(said("top", pid, "--json")).dig("process", "mode")).to eq("sampled")
  end

  it "says what a start changes in a process that is tracked already" do
    pid = start_program(LEAK).pid
    same = "process #{pid} (-e) tracked already, with the same limits; "
    said("start", pid)
    objects = -> { JSON.parse(said("top", pid, "--json"))["call_sites"].sum { |site| site["live_objects"].to_i } }
    expect(said("start", pid, "--objects")).to eq("#{same}it tracks objects from now on (full mode)\n")
    expect(eventually { objects.call.positive? }).to be(true)
    expect(said("start", pid, "--objects")).to end_with(" tracked already; nothing changed (full mode)\n")
    expect(said("start", pid, "--objects=String")).to eq("#{same}it tracks other objects, from zero (full mode)\n")
    expect(said("start", pid, "--no-native-callers", "--stop-after", "600"))
      .to eq("#{same}it no longer tracks objects; it no longer finds native callers; it stops after the given time " \
             "(full mode)\n")
    expect(said("start", pid, "--objects", "--mode", "sampled"))
      .to end_with(" changed the mode, and kept its figures; it tracks objects from now on (sampled mode)\n")
  end

  it "is not among the call sites itself, with tracking from any start" do
    program = start_program(<<~RUBY)
      Memintro.listen(name: "asked")
      puts :ready
      trap("USR1") { Memintro.start; puts :started }
      loop { sleep 0.01 }
    RUBY
    said("top", "asked")
    # Its remaining work for that client would count.
    eventually { at_rest?(program.pid) }
    program.kill(:USR1)
    expect(program.line).to eq("started")
    3.times { said("top", "asked", "--top", "all") && said("gc", "asked") && said("snapshot", "asked") }
    sites = JSON.parse(said("top", "asked", "--top", "all", "--json")).fetch("call_sites")
    # The program itself called `start`.
    own = sites.select { |site| site["name"].include?("lib/memintro/") && !site["name"].include?("malloc/tracking.rb") }
    # It slept when the tracking began: what the one call gave that it slept in.
    expect(own.map { |site| site["path"] }.uniq - [File.join(Subprocess::LIB, "memintro/control/server.rb")]).to eq([])
    expect(own.sum { |site| site["allocations"] }).to be <= 4
  end

  it "refuses to guess between two processes of one name, and asks both where all are meant" do
    pids = Array.new(2) { start_program("Memintro.listen(name: 'twin'); puts :ready; sleep").pid }.sort
    expect(complaint("top", "twin"))
      .to eq("memintro: 2 processes are called \"twin\"; give the PID of one, or --workers for all of them:\n" \
             "#{pids.map { |pid| "  #{pid} (-e)\n" }.join}")
    expect(said("start", "twin", "--workers"))
      .to eq(pids.map { |pid| "process #{pid} (-e) tracks its allocations now (full mode)\n" }.join)
    expect(said("top", "twin", "--workers").scan(/^ *(\d+) .* -e$/).flatten.map(&:to_i)).to eq(pids)
    expect(complaint("top", "triplet"))
      .to match(/no process that listens is called "triplet"; there are #{pids[0]} \(-e\), /)
  end

  it "says that a process is stopped, and how to continue it" do
    program = start_program(LISTENER)
    program.kill(:STOP)
    expect(complaint("top", program.pid, "--timeout", "1"))
      .to eq("memintro: process #{program.pid} did not answer within 1.0 s: it is stopped (SIGSTOP, Ctrl-Z or a " \
             "debugger); continue it with: kill -CONT #{program.pid}\n")
    expect(said("ps")).to match(/^ *#{program.pid} .* \?  /).and include("kill -CONT")
    program.kill(:CONT)
    expect(memintro("mark", program.pid)).to be_success
  end

  it "says that C code keeps Ruby's lock, and answers when it has let go" do
    reader, writer = IO.pipe
    program = start_program(<<~RUBY, in: reader)
      require "fiddle"
      Memintro.listen
      puts :ready
      read = Fiddle::Function.new(Fiddle.dlopen(nil)["getchar"], [], Fiddle::TYPE_INT, need_gvl: true)
      read.call
      sleep
    RUBY
    result = eventually { memintro("top", program.pid, "--timeout", "1").then { |done| done unless done.success? } }
    expect(result.stderr).to match(/process #{program.pid} did not answer within 1.0 s: .* holds Ruby's lock \(GVL\)/)
    writer.puts
    expect(memintro("mark", program.pid, "--timeout", "60")).to be_success
  end

  it "says that a process has ended, does not listen, or belongs to somebody else" do
    program = start_program(LISTENER)
    silent = start_program("puts :ready; sleep")
    expect(complaint("top", silent.pid))
      .to match(/\Amemintro: process #{silent.pid} \(.*\) does not listen; it cannot be changed from outside: restart/)
      .and include("restart it with MEMINTRO_LISTEN=1")
      .and end_with(". memintro rss #{silent.pid} works without that\n")
    expect(said("rss", silent.pid)).to include("RSS")
    program.kill
    program.wait
    expect(complaint("top", program.pid)).to eq("memintro: there is no process #{program.pid}\n")
    skip "only root can try another user" unless Process.uid.zero? && system("which setpriv", out: File::NULL)
    other = %w[setpriv --reuid=65534 --regid=65534 --clear-groups]
    result = run_command(*other, RbConfig.ruby, Subprocess::EXE, "top", silent.pid.to_s, env: listening_env)
    expect(result.stderr).to match(/process #{silent.pid} belongs to user root; only root may ask it/)
  end

  it "lets no other user ask, also where the file's mode would" do
    skip "only root can try another user" unless Process.uid.zero? && system("which setpriv", out: File::NULL)
    pid = start_program(LISTENER).pid
    [[0o711, socket_folder], [0o666, path_of(pid)]].each { |mode, file| File.chmod(mode, file) }
    code = "require 'socket'; s = UNIXSocket.new(ARGV[0]); puts s.gets"
    result = run_command("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", RbConfig.ruby, "-e", code,
                         path_of(pid))
    expect(result.json).to include(ok: false, message: "user 65534 may not ask a process of user 0")
  end

  it "removes what a killed process left, also if a child holds the socket without knowing" do
    code = <<~RUBY
      Memintro.listen
      listener = ObjectSpace.each_object(Socket).find { |s| s.local_address.unix_path.end_with?(".new") }
      spawn("sleep", "120", listener => listener)
      puts :ready
      sleep
    RUBY
    program = start_program(code)
    program.kill
    program.wait
    expect(complaint("top", program.pid))
      .to match(/process #{program.pid} has ended, but a child still holds its control socket/)
    expect(sockets.size).to eq(1)
    expect(said("ps")).to start_with("No process listens")
    expect(sockets).to eq([])
  end

  it "replaces the socket that a process of the same number has left" do
    code = "require 'socket'; UNIXServer.new(\"\#{ENV['MEMINTRO_SOCKET_FOLDER']}/\#{$$}.sock\").close; #{LISTENER}"
    pid = start_program(code).pid
    expect(memintro("mark", pid)).to be_success
  end

  it "names both versions where the protocols differ" do
    server = UNIXServer.new(path_of(Process.pid))
    answering = Thread.new do
      client = server.accept
      client.gets
      client.puts('{"ok":false,"memintro":"9.0.0","protocol":9,"error":"Memintro::ControlError",' \
                  '"message":"the process runs memintro 9.0.0 (protocol 9), the command is memintro 0.1.0"}')
      client.close
    end
    expect(complaint("top", Process.pid))
      .to match(/the process runs memintro 9.0.0 \(protocol 9\), the command is memintro 0/)
  ensure
    answering&.join(10)
    server&.close
  end

  it "says what a process of another version lacks, and whose command to use" do
    pid = start_program(<<~RUBY).pid
      require "memintro/control"
      { Memintro => [:VERSION, "0.0.9"], Memintro::Control::Commands => [:NAMES, %w[info start stop top doctor]] }
        .each { |owner, (name, value)| owner.send(:remove_const, name) && owner.const_set(name, value.freeze) }
      Memintro::Control::Commands.class_eval("private def doctor = json({})")
      Memintro.listen(name: "old")
      puts :ready
      sleep
    RUBY
    require "memintro/version"
    remedy = "; the command is memintro #{Memintro::VERSION}, the process runs 0.0.9: use the command of the " \
             "process's version, for example in its folder: bundle exec memintro\n"
    expect(complaint("gc", "old")).to eq("memintro: process #{pid} (memintro 0.0.9) has no command \"gc\"; it has " \
                                         "info, start, stop, top, doctor#{remedy}")
    expect(complaint("histogram", pid)).to start_with("memintro: process #{pid} (memintro 0.0.9) has no command \"snap")
      .and end_with(remedy)
    expect(complaint("doctor", pid, "--json")).to eq("memintro: doctor takes no format; it takes colour#{remedy}")
    # Commands that both know work.
    expect(said("ps")).to match(/^ *#{pid} .* 0\.0\.9 +old  -e$/)
    expect(said("start", "old")).to include("tracks its allocations now")
  end

  it "ends well when a reader has seen enough" do
    program = start_program(<<~RUBY)
      Memintro.start
      kept = eval((1..2_000).map { "'x' * 10_000" }.join(",\n").then { |lines| "[\#{lines}]" })
      Memintro.listen(name: "many")
      puts :ready
      sleep
    RUBY
    [["report", "many", "--json"], ["report", program.pid, "--top", "all"], ["top", "many", "many", "--top", "all"],
     ["top", "many", "--workers", "--json"], ["doctor", "many"], ["mark", "many"]].each do |arguments|
      reader, writer = IO.pipe
      reader.close
      result = memintro(*arguments, out: writer)
      writer.close
      expect([result.status.exitstatus, result.stderr]).to eq([0, ""]), arguments.join(" ")
    end
    expect(said("report", "many", "--json").bytesize).to be > 200_000
    expect(program).to be_alive
  end

  it "says that what listens is something else, or hangs up" do
    server = UNIXServer.new(path_of(Process.pid))
    answers = ["HTTP/1.1 400 Bad Request\n", ""]
    answering = Thread.new do
      answers.each do |text|
        client = server.accept
        client.gets
        client.write(text)
        client.close
      end
    end
    expect(complaint("top", Process.pid)).to match(/does not speak memintro's protocol/)
    expect(complaint("top", Process.pid)).to match(/ended, or stopped listening, before it had answered/)
  ensure
    answering&.join(10)
    server&.close
  end

  describe "where no socket can be made" do
    it "tells a program that asked for it, and does not disturb one that was asked for it" do
      code = "puts :ready; begin; Memintro.listen; rescue Memintro::ListenError => e; puts e.message; end"
      long = File.join(socket_folder, "x" * 100)
      program = start_program(code, env: { "MEMINTRO_SOCKET_FOLDER" => long })
      expect(program.line)
        .to match(/no folder is safe for the control socket: .*x is too long \(\d+ bytes with the socket's/)
      result = run_ruby(code: "puts 1", env: { "MEMINTRO_LISTEN" => "1", "MEMINTRO_SOCKET_FOLDER" => "/proc/nowhere" })
      expect(result.must_succeed.stdout).to eq("1\n")
      expect(result.stderr).to match(%r{\Amemintro: process \d+ does not listen: .*/proc/nowhere: .*\n\z})
    end

    it "takes the next folder if the runtime folder is missing, too long or not its own" do
      open_to_all = File.join(socket_folder, "open").tap { |folder|
        FileUtils.mkdir_p(File.join(folder, "memintro"), mode: 0o777)
      }
      File.chmod(0o777, File.join(open_to_all, "memintro"))
      ["/nowhere", File.join(socket_folder, "y" * 100), open_to_all].each do |runtime|
        code = "path = Memintro.listen; puts :ready, path; $stdin.gets"
        reader, writer = IO.pipe
        program = start_program(code, env: { "MEMINTRO_SOCKET_FOLDER" => nil, "XDG_RUNTIME_DIR" => runtime },
                                      in: reader)
        expect(program.line).to match(%r{\A/(run/user/\d+/memintro|tmp/memintro-\d+)/#{program.pid}\.sock\z})
        writer.close
        program.wait
      end
    end
  end

  it "does not mind a program that closes what is not its own, or has no descriptor left" do
    expect(start_program(<<~RUBY).line).to eq("2")
      Memintro.listen
      ObjectSpace.each_object(IO) do |io|
        io.close if io.fileno > 2
      rescue IOError # closed already, perhaps by the listening thread, which notices at once
      end
      puts :ready
      sleep 0.1 while Memintro.listening?
      puts 2
    RUBY
    program = start_program(<<~RUBY, in: (reader, writer = IO.pipe).first)
      Memintro.listen
      Process.setrlimit(:NOFILE, 64)
      files = []
      begin
        loop { files << File.open("/dev/null") }
      rescue Errno::EMFILE
        puts :ready
      end
      $stdin.gets
      files.each(&:close)
      puts :closed
      sleep
    RUBY
    reader.close
    expect(complaint("mark", program.pid, "--timeout", "1")).to match(/did not answer within 1.0 s/)
    writer.puts
    expect(program.line).to eq("closed")
    expect(memintro("mark", program.pid)).to be_success
  end
end
