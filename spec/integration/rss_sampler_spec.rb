# frozen_string_literal: true

require_relative "../spec_helper"

# The sampler in a program of its own: what it keeps, and that it disturbs nothing.
RSpec.describe "Memintro::RSSSampler" do
  SAMPLER_HELPERS = <<~'RUBY'
    require "json"
    def put(answer) = puts(JSON.generate(answer))
    def eventually
      600.times { return true if yield; sleep 0.05 }
      false
    end
  RUBY

  def sampler(code, **options)
    run_ruby(code: SAMPLER_HELPERS + code, **options).must_succeed.json
  end

  it "keeps what it sees, in one named thread" do
    answer = sampler(<<~RUBY)
      before = Thread.list
      sampler = Memintro::RSSSampler.new(interval: 0.02).start.start
      eventually { sampler.points.size >= 5 }
      names = (Thread.list - before).map(&:name)
      latest = sampler.latest
      sampler.stop
      point = sampler.points.last
      put(names: names, rss: (latest.rss - Memintro.rss).abs, live: latest.live_objects, off: latest.malloc_live_bytes,
          pss: latest.pss, keys: latest.to_h.keys, count: point.count, spread: point[:rss].to_h.values.map(&:to_i).uniq.size,
          none: point[:pss], running: sampler.running?, frozen: [latest, point, point[:rss]].all?(&:frozen?),
          time: (Time.now.to_f - latest.time).abs, left: Thread.list.size - before.size, shown: sampler.inspect)
    RUBY
    expect(answer[:names]).to eq(["memintro-sampler"])
    expect(answer[:rss]).to be < 4 << 20
    expect(answer[:live]).to be > 10_000
    expect(answer).to include(off: nil, pss: nil, none: nil, count: 1, spread: 1, running: false, frozen: true, left: 0)
    expect(answer[:keys]).to eq(%w[time rss pss live_objects malloc_live_bytes gc_time_ns])
    expect(answer[:time]).to be < 60
    expect(answer[:shown]).to match(/\A#<Memintro::RSSSampler every 0.02 s, stopped, .* rss \d+\.\d MiB/)
  end

  it "takes pss when asked, and malloc's live bytes while tracking" do
    answer = sampler(<<~RUBY)
      Memintro.start
      sampler = Memintro::RSSSampler.new
      plain = sampler.take
      asked = sampler.take(pss: true)
      always = Memintro::RSSSampler.new(pss: true).take
      put(pss: [plain.pss, asked.pss && (asked.pss - Memintro.pss).abs < 1 << 20, always.pss&.positive?],
          live: plain.malloc_live_bytes, points: sampler.points.size)
    RUBY
    expect(answer).to include(pss: [nil, true, true], points: 2)
    expect(answer[:live]).to be_an(Integer)
  end

  it "says of live objects, malloc and the collector what they say of themselves" do
    answer = sampler(read_program("rss_sampler/figures.rb"))
    expect(answer).to include(idle: 0, same: [true, true, true], collected: be > 10_000)
    expect(answer[:malloc]).to be_between(5_000_000, 6_000_000)
    expect(answer[:objects]).to be_between(20_100, 21_000)
  end

  it "calls back with each sample, outlives one that raises, and lets the program's own figures be" do
    answer = sampler(read_program("rss_sampler/callback.rb"))
    expect(answer).to eq(rows: true, thread: ["memintro-sampler"], errors: true, last: "on purpose", ours: [])
  end

  it "goes on in forked children and after Process.daemon, with a history of their own" do
    answer = sampler(read_program("rss_sampler/forked_children.rb"))
    expect(answer).to eq(fork: [true, true, true], daemon: [true, true, true])
  end

  it "takes no signal, and works in trap handlers and finalizers" do
    answer = sampler(<<~'RUBY')
      sampler = Memintro::RSSSampler.new(interval: 0.01).start
      handled = 0
      sampled = nil
      trap(:USR1) { handled += 1 if Thread.current == Thread.main; sampled = sampler.take && sampler.points.size }
      50.times { |n| Process.kill(:USR1, Process.pid); eventually { handled > n } }
      finalized = nil
      200.times { ObjectSpace.define_finalizer(Object.new, proc { finalized = sampler.take.rss }) }
      GC.start
      put(handled: handled, sampled: sampled.is_a?(Integer), finalized: finalized.is_a?(Integer))
    RUBY
    expect(answer).to eq(handled: 50, sampled: true, finalized: true)
  end

  it "does not keep the process from ending" do
    code = "Memintro::RSSSampler.new(interval: 3_600).start; at_exit { puts :ended }"
    result = run_ruby(code: code)
    expect([result.must_succeed.stdout, result.stderr]).to eq(["ended\n", ""])
  end

  # Failing samples, then working ones: at the end there are points.
  RECOVERY = <<~'RUBY'
    def recovered(sampler)
      failed = eventually { sampler.errors >= 3 }
      seen = [failed, sampler.running?, sampler.points.size, sampler.last_error.class.name, sampler.callback_errors]
      yield
      [*seen, eventually { sampler.points.size >= 2 }, sampler.running?]
    end
  RUBY

  it "goes on where a sample cannot be had for want of a descriptor, and says so once" do
    code = read_program("rss_sampler/failing_samples.rb")
    helpers = SAMPLER_HELPERS + RECOVERY
    %w[start fork].each do |way|
      result = run_ruby(nil, way, code: helpers + code).must_succeed
      expect(result.json).to eq([true, true, 0, "Memintro::ProcError", 0, true, true])
      expect(result.stderr.lines).to match([/\Amemintro: a sample is missing, .*no more files may be open/])
    end
  end

  it "goes on without /proc, and works when it is there" do
    ruby = [RbConfig.ruby, "-I#{Subprocess::LIB}", "-rmemintro", "-rfiddle", "-e"]
    shell = 'mount -t tmpfs none /proc || exit 99; exec "$@"'
    result = run_command("unshare", "--mount", "sh", "-c", shell, "sh", *ruby, <<~RUBY)
      #{SAMPLER_HELPERS + RECOVERY}
      unmount = Fiddle::Function.new(Fiddle.dlopen(nil)["umount2"], [Fiddle::TYPE_VOIDP, Fiddle::TYPE_INT], Fiddle::TYPE_INT)
      put(recovered(Memintro::RSSSampler.new(interval: 0.02).start) { unmount.call("/proc", 2) })
    RUBY
    skip "mounts are refused here: #{result.stderr}" if result.status.exitstatus == 99 || /unshare/ =~ result.stderr
    expect(result.must_succeed.json).to eq([true, true, 0, "Memintro::ProcError", 0, true, true])
    expect(result.stderr.lines.size).to eq(1)
  end

  it "outlives a callback that raises what is no StandardError" do
    answer = sampler(<<~'RUBY')
      sampler = Memintro::RSSSampler.new(interval: 0.02).on_sample { raise NotImplementedError, "on purpose" }.start
      eventually { sampler.callback_errors >= 3 }
      put([sampler.running?, sampler.errors, sampler.last_error.class.name])
    RUBY
    expect(answer).to eq([true, 0, "NotImplementedError"])
  end

  it "outlives a callback that raises what only Exception is above, and lets one end the program by exit" do
    answer = sampler(<<~'RUBY')
      called = 0
      sampler = Memintro::RSSSampler.new(interval: 0.02)
      sampler.on_sample { raise Exception, "on purpose" }.on_sample { raise Interrupt }.on_sample { called += 1 }.start
      eventually { called >= 3 }
      found = [sampler.running?, sampler.errors, sampler.last_error.class.name, sampler.callback_errors >= 6]
      thread = Thread.list.find { |one| one.name == "memintro-sampler" }
      sampler.on_sample { thread.kill }
      put([*found, eventually { !thread.alive? }])
    RUBY
    expect(answer).to eq([true, 0, "Interrupt", true, true])
    code = "Memintro::RSSSampler.new(interval: 0.02).on_sample { exit 3 }.start; sleep 60"
    result = run_ruby(code: code)
    expect([result.status.exitstatus, result.stderr]).to eq([3, ""])
  end

  it "stops at once however long it would sleep, and sleeps meanwhile" do
    answer = sampler(<<~'RUBY')
      sampler = Memintro::RSSSampler.new(interval: 3_600).start
      eventually { sampler.latest }
      task = Dir.children("/proc/self/task").find { |id| File.read("/proc/self/task/#{id}/comm").start_with?("memintro-sample") }
      # A sleeping thread. Ruby reuses native threads, so its name may be on none.
      wakes = -> { task && File.read("/proc/self/task/#{task}/status")[/^voluntary_ctxt_switches:\s+(\d+)/, 1].to_i }
      before = wakes.call
      sleep 1
      woken = task ? wakes.call - before : 0
      begun = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      spent = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
      sampler.stop
      put(woken: woken, seconds: Process.clock_gettime(Process::CLOCK_MONOTONIC) - begun,
          spent: Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - spent, running: sampler.running?,
          threads: Thread.list.size, samples: sampler.points.sum(&:count))
    RUBY
    expect(answer).to include(running: false, threads: 1, samples: 1, seconds: be < 30, spent: be < 0.5)
    expect(answer[:woken]).to be <= 5
  end

  # It looks twice a second whether it shall stop: who has to wait for that waits longer, however calm the machine is.
  it "is woken up by stop" do
    answer = sampler(<<~'RUBY')
      least = Array.new(10) do
        sampler = Memintro::RSSSampler.new(interval: 3_600).start
        thread = Thread.list.find { |one| one.name == "memintro-sampler" }
        eventually { sampler.latest && thread.status == "sleep" }
        begun = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        sampler.stop
        Process.clock_gettime(Process::CLOCK_MONOTONIC) - begun
      end.min
      put(seconds: least, threads: Thread.list.size)
    RUBY
    expect(answer).to include(seconds: be < 0.25, threads: 1)
  end

  it "answers with a list that a datagram can hold, of a day" do
    answer = sampler(<<~'RUBY')
      sampler = Memintro::RSSSampler.new
      ring = sampler.instance_variable_get(:@ring)
      43_200.times { |i| ring.add(1_700_000_000.0 + (2 * i), [50_000_000 + i, nil, 40_000 + i, nil, i]) }
      points = sampler.points
      put(list: points.class.name, size: points.size, bytes: points.inspect.bytesize, frozen: points.frozen?)
    RUBY
    expect(answer).to include(list: "Memintro::List", size: be > 500, frozen: true, bytes: be < 10_000)
  end

  it "refuses a wrong interval, naming it, and a Ractor" do
    answer = sampler(<<~'RUBY', flags: ["-W0"])
      messages = [0, -1, 0.001, Float::INFINITY, Float::NAN, "2", nil].map do |interval|
        Memintro::RSSSampler.new(interval: interval) && "accepted"
      rescue ArgumentError, TypeError => e
        e.message[/\Ainterval is .*; it must be|\Ainterval is .*it must be at least/] || e.message
      end
      ractor = Ractor.new { Memintro::RSSSampler.new.start rescue "#{$!.class}: #{$!.message}" }
      put(messages: messages.count { |message| message.start_with?("interval is ") },
          ractor: ractor.respond_to?(:value) ? ractor.value : ractor.take)
    RUBY
    expect(answer[:messages]).to eq(7)
    expect(answer[:ractor])
      .to eq("Memintro::RactorError: a sampler can be made only in the main Ractor; make it there, and ask " \
             "Memintro.rss and the like in others")
  end
end
