# frozen_string_literal: true

require_relative "../spec_helper"

# The sampler in a program of its own: what it keeps, and that it disturbs nothing.
RSpec.describe "Memintro::Sampler" do
  def sampler(code, **options)
    helpers = <<~'RUBY'
      require "json"
      def put(answer) = puts(JSON.generate(answer))
      def eventually
        600.times { return true if yield; sleep 0.05 }
        false
      end
    RUBY
    run_ruby(code: helpers + code, **options).must_succeed.json
  end

  it "keeps what it sees, in one named thread" do
    answer = sampler(<<~RUBY)
      before = Thread.list
      sampler = Memintro::Sampler.new(interval: 0.02).start.start
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
    expect(answer[:shown]).to match(/\A#<Memintro::Sampler every 0.02 s, stopped, .* rss \d+\.\d MiB/)
  end

  it "takes pss when asked, and malloc's live bytes while tracking" do
    answer = sampler(<<~RUBY)
      Memintro.start
      sampler = Memintro::Sampler.new
      plain = sampler.take
      asked = sampler.take(pss: true)
      always = Memintro::Sampler.new(pss: true).take
      put(pss: [plain.pss, asked.pss && (asked.pss - Memintro.pss).abs < 1 << 20, always.pss&.positive?],
          live: plain.malloc_live_bytes, points: sampler.points.size)
    RUBY
    expect(answer).to include(pss: [nil, true, true], points: 2)
    expect(answer[:live]).to be_an(Integer)
  end

  it "calls back with each sample, outlives one that raises, and lets the program's own figures be" do
    answer = sampler(<<~'RUBY')
      Thread.report_on_exception = true
      seen = []
      threads = []
      sampler = Memintro::Sampler.new(interval: 0.02)
      sampler.on_sample { raise "on purpose" }.on_sample { |sample| seen << sample and threads << Thread.current.name }
      sampler.start
      eventually { seen.size >= 5 }
      sampler.stop
      Memintro.start
      quiet = Memintro::Sampler.new(interval: 0.01).start
      eventually { quiet.points.size > 2 }
      Memintro.clear
      now = quiet.points.sum(&:count)
      eventually { quiet.points.sum(&:count) > now + 20 }
      ours = Memintro.each_call_site.select { |site| site.name.include?("/memintro/sampler") }.map(&:name)
      put(rows: seen.size >= 5, thread: threads.uniq, errors: sampler.callback_errors >= 5, last: sampler.last_error.message,
          ours: ours.grep_v(/sampler.rb:\d+\z/))
    RUBY
    expect(answer).to eq(rows: true, thread: ["memintro-sampler"], errors: true, last: "on purpose", ours: [])
  end

  it "goes on in forked children and after Process.daemon, with a history of their own" do
    answer = sampler(<<~'RUBY')
      require "fiddle"
      sampler = Memintro::Sampler.new(interval: 0.02).start
      eventually { sampler.points.size >= 3 }
      check = lambda do |io|
        begun = Process.clock_gettime(Process::CLOCK_REALTIME)
        grown = eventually { sampler.points.size >= 3 }
        io.write(Marshal.dump([grown, sampler.running?, sampler.points.first.first >= begun - 10]))
        io.close
        Process.exit!(0)
      end
      ways = {
        fork: ->(io) { fork { check.call(io) } },
        daemon: ->(io) { fork { Process.daemon(true, true); check.call(io) } },
        c: ->(io) { Fiddle::Function.new(Fiddle.dlopen(nil)["fork"], [], Fiddle::TYPE_INT).call.zero? && check.call(io) }
      }
      put(ways.to_h do |name, way|
        reader, writer = IO.pipe
        way.call(writer)
        writer.close
        [name, Marshal.load(reader.read)]
      end)
    RUBY
    expect(answer).to eq(fork: [true, true, true], daemon: [true, true, true], c: [true, true, true])
  end

  it "takes no signal, and works in trap handlers and finalizers" do
    answer = sampler(<<~'RUBY')
      sampler = Memintro::Sampler.new(interval: 0.01).start
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
    code = "Memintro::Sampler.new(interval: 3_600).start; at_exit { puts :ended }"
    result = run_ruby(code: code, deadline_seconds: 60)
    expect([result.must_succeed.stdout, result.stderr]).to eq(["ended\n", ""])
  end

  it "refuses a wrong interval, naming it, and a Ractor" do
    answer = sampler(<<~'RUBY', flags: ["-W0"])
      messages = [0, -1, 0.001, Float::INFINITY, Float::NAN, "2", nil].map do |interval|
        Memintro::Sampler.new(interval: interval) && "accepted"
      rescue ArgumentError, TypeError => e
        e.message[/\Ainterval is .*; it must be|\Ainterval is .*it must be at least/] || e.message
      end
      ractor = Ractor.new { Memintro::Sampler.new.start rescue $!.class.name }
      put(messages: messages.count { |message| message.start_with?("interval is ") },
          ractor: ractor.respond_to?(:value) ? ractor.value : ractor.take)
    RUBY
    expect(answer[:messages]).to eq(7)
    expect(answer[:ractor]).to match(/UnsupportedError|UnsafeError|IsolationError/)
  end
end
