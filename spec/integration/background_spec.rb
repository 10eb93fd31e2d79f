# frozen_string_literal: true

require_relative "../spec_helper"

# Threads of memintro's own: what the program they run beside may rely on.
RSpec.describe "Memintro::Background" do
  one_ruby requires: %w[memintro memintro/runtime/background fiddle json]

  # The last line that a child printed; `eventually` there polls, and the child has a deadline.
  # fresh: in a Ruby of its own, which is not forked.
  def background(code, fresh: false, **options)
    helpers = <<~'RUBY'
      require "json"
      require "memintro/runtime/background"
      def put(answer) = puts(JSON.generate(answer))
      def start(&work) = Memintro::Background.start("memintro-spec", &work)
      def eventually
        600.times { return true if yield; sleep 0.05 }
        false
      end
      def blocked(thread)
        mask = File.read("/proc/self/task/#{thread.native_thread_id}/status")[/^SigBlk:\s+(\h+)/, 1].hex
        Signal.list.select { |_, number| number.positive? && mask[number - 1] == 1 }.keys
      end
    RUBY
    program = helpers + code
    (fresh ? run_ruby(code: program, **options) : run_forked(program, **options)).must_succeed.json
  end

  it "is one named thread that stops at once, and once only" do
    answer = background(<<~RUBY)
      rounds = 0
      before = Thread.list.size
      background = start { |stop| rounds += 1 until stop.wait(0.01) }
      eventually { rounds > 2 }
      more = Thread.list.size - before
      seen = File.read("/proc/self/task/\#{background.thread.native_thread_id}/comm").chomp
      endless = start { |stop| stop.wait }
      2.times { background.stop }
      endless.stop
      put(more: more, seen: seen, alive: [background.alive?, endless.alive?], threads: Thread.list.size - before)
    RUBY
    expect(answer).to eq(more: 1, seen: "memintro-spec", alive: [false, false], threads: 0)
  end

  # In a forked child, Ruby 3.1 knows no number of the main thread.
  it "takes none of the program's signals, but where the program's own code runs" do
    answer = background(read_program("background/signals.rb"), fresh: true)
    expect(answer[:mask]).to include("HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "CHLD", "WINCH", "PROF")
    expect(answer[:mask] & %w[SEGV BUS FPE ILL VTALRM]).to eq([])
    expect(answer).to include(visible: [], inherited: 0, handled: 100, main: [])
  end

  it "leaves no mask on the native thread that Ruby lends to the next one" do
    answer = background(<<~RUBY)
      start { }
      masks = Array.new(20) { start { |stop| stop.wait(0.001) }.thread.join; Thread.new { blocked(Thread.current) }.value }
      put(masks: masks.flatten.uniq)
    RUBY
    expect(answer[:masks]).to eq([])
  end

  it "is there again in forked children: by Ruby and by Process.daemon" do
    answer = background(read_program("background/forked_children.rb"))
    expect(answer).to eq(fork: [true, 1], fork_in_fork: [true, 1], popen: [true, 1], daemon: [true, 1])
  end

  it "is not there in a child that C code forks, which works and ends as it would" do
    answer = background(<<~'RUBY')
      require "fiddle"
      background = start { |stop| stop.wait }
      child = Fiddle::Function.new(Fiddle.dlopen(nil)["fork"], [], Fiddle::TYPE_INT, need_gvl: true).call
      if child.zero?
        alive = background.alive?
        refused = begin
          start { |stop| stop.wait }
        rescue Memintro::Error => e
          e.message.include?("C code forked this process")
        end
        20.times { GC.start }
        exit(!alive && refused ? 3 : 1)
      end
      put(status: Process.wait2(child).last.exitstatus, alive: background.alive?)
    RUBY
    expect(answer).to eq(status: 3, alive: true)
  end

  it "is not there again once it was stopped, or where it failed" do
    answer = background(<<~RUBY)
      stopped = start { |stop| stop.wait }
      stopped.stop
      failed = start { raise "on purpose" }
      eventually { failed.error }
      reader, writer = IO.pipe
      fork { writer.write(JSON.generate([stopped.alive?, failed.alive?])) }
      writer.close
      put(child: JSON.parse(reader.read), error: failed.error.message)
    RUBY
    expect(answer).to eq(child: [false, false], error: "on purpose")
  end

  it "fails without a word, and without ending the program" do
    result = run_ruby(code: <<~RUBY, requires: %w[memintro memintro/runtime/background])
      Thread.abort_on_exception = true
      background = Memintro::Background.start("memintro-spec") { raise "on purpose" }
      background.thread.join
      puts "still here"
    RUBY
    expect([result.must_succeed.stdout, result.stderr]).to eq(["still here\n", ""])
  end

  it "does not keep the process from ending" do
    code = <<~RUBY
      4.times { |n| Memintro::Background.start("memintro-\#{n}") { |stop| n.zero? ? loop { sleep } : stop.wait } }
      at_exit { puts "ended" }
    RUBY
    result = run_ruby(code: code, requires: %w[memintro memintro/runtime/background])
    expect([result.must_succeed.stdout, result.stderr]).to eq(["ended\n", ""])
  end

  it "can be stopped in a trap handler, by itself, and where it does not listen" do
    answer = background(<<~RUBY)
      first = start { |stop| stop.wait }
      itself = nil
      itself = start { |stop| eventually { itself }; itself.stop }
      deaf = start { loop { sleep } }
      trap(:USR1) { first.stop }
      Process.kill(:USR1, Process.pid)
      ended = eventually { !first.alive? }
      deaf.stop(patience: 0.05)
      put(first: ended, itself: eventually { !itself.alive? }, deaf: eventually { !deaf.alive? })
    RUBY
    expect(answer).to eq(first: true, itself: true, deaf: true)
  end

  it "wakes a thread that waits for other input, and leaves no descriptor open" do
    answer = background(<<~RUBY)
      before = Dir.children("/proc/self/fd").size
      reader, writer = IO.pipe
      backgrounds = Array.new(3) { start { |stop| IO.select([reader, stop.io]) } }
      eventually { backgrounds.all? { |one| one.thread.stop? } }
      backgrounds.each(&:stop)
      put(ended: backgrounds.none?(&:alive?), left: Dir.children("/proc/self/fd").size - before - 2)
    RUBY
    expect(answer).to eq(ended: true, left: 0)
  end

  it "is refused in a Ractor, in words" do
    answer = background(<<~'RUBY', fresh: true, flags: ["-W0"])
      ractor = Ractor.new do
        Memintro::Background.start("memintro-spec") { |stop| stop.wait }
      rescue Memintro::RactorError => e
        e.message
      end
      put(message: ractor.respond_to?(:value) ? ractor.value : ractor.take)
    RUBY
    expect(answer[:message]).to eq("memintro-spec cannot be started in a Ractor; start it in the main one")
  end

  # Simulates the limit of processes, which root does not have.
  it "says that there is no thread to be had, and is there when one is, after a fork too" do
    answer = background(read_program("background/no_threads.rb"))
    expect(answer[:refused]).to match(["Memintro::Error", /\Amemintro-spec cannot be started: no more; end other/])
    expect(answer).to include(there: true, child: [false, true])
  end

  it "leaves no thread of the program untracked where threads of Ruby share native ones" do
    skip "this Ruby has no M:N threads" if RUBY_VERSION < "3.3"

    found = run_ruby(code: <<~'RUBY', requires: %w[fiddle logger memintro], env: { "RUBY_MN_THREADS" => "1" })
      Memintro.start
      Memintro.log_every(0.01, Logger.new(File::NULL))
      def keep = Fiddle.malloc(60_000)
      Array.new(8) { Thread.new { 200.times { keep; sleep 0.0003 } } }.each(&:join)
      Memintro.untracked { keep; Array.new(8) { Thread.new { sleep 0.02; keep } }.each(&:join); keep }
      puts Memintro["-e:3"].live_bytes / 60_000
    RUBY
    # An untracked section is its thread's own.
    expect(found.must_succeed.stdout).to eq("1608\n")
  end
end
