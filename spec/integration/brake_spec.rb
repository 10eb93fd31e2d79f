# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/listening"

# `MEMINTRO_DISABLE`: after any call of memintro, a program continues as if it were not tracked. The examples of
# README.md and docs/ are run with it in documents/brake_spec.rb.
RSpec.describe "MEMINTRO_DISABLE" do
  def braked(value = "1") = { "MEMINTRO_DISABLE" => value }

  said = /\Amemintro: MEMINTRO_DISABLE=1 is set, so nothing is tracked in process \d+, whatever it asks for\n\z/

  it "has each method answer as where nothing is tracked, and one line on standard error says why" do
    result = run_ruby(env: braked, code: <<~'RUBY').must_succeed
      require "stringio"
      p Memintro.disabled?, Memintro.start, Memintro.start(mode: :sampled, stop_after: 1), Memintro.listen(name: "shop")
      ran = 0
      p Memintro.track(mode: :sampled) { ran += 1; Array.new(100) { "x" * 10_000 } }.to_h.values.uniq, ran
      p Memintro.stop.to_h.values.uniq, Memintro.mark, Memintro.clear, Memintro.tracking?, Memintro.mode
      p Memintro.totals.live_blocks, Memintro.thread_totals.allocated_bytes, Memintro.top.to_a, Memintro["x"]
      p Memintro.each_call_site.to_a, Memintro.untracked { 7 }, Memintro.listening?, Memintro.stop_listening
      Memintro.report(out = StringIO.new)
      p out.string.lines.first.include?("not tracking"), Memintro.doctor.problems
      log = Memintro.log_every(0.01, out)
      sampler = Memintro::RSSSampler.new(interval: "often").start
      sleep 0.1
      p log.running?, log.stop, sampler.running?, sampler.points.size, out.string.include?("MEMORY"), Thread.list.size
      p sampler.take.rss.positive?, Memintro.rss.positive?, Memintro.snapshot.memory[:rss_bytes].positive?
      p File.read("/proc/self/maps").scan(/libmemintro_hook/).size.positive?
    RUBY
    expected = [
      "true", "false", "false", "nil", "[0]", "1", "[0]", "nil", "nil", "false", ":off", "0", "0",
      "[]", "nil", "[]", "7", "false", "false", "true",
      '["MEMINTRO_DISABLE=1 is set: nothing is tracked here; unset it and start the program again"]',
      "false", "nil", "false", "0", "false", "1", "true", "true", "true", "true"
    ]
    expect(result.stdout.lines(chomp: true)).to eq(expected)
    expect(result.stderr).to match(said)
  end

  it "is heard of once, in forked children too, and not at all by who does not ask for anything" do
    code = "Memintro.start; 3.times { fork { Memintro.start; Memintro.listen; Memintro.track {} } }; " \
           "p Process.waitall.size"
    result = run_ruby(env: braked, code: code).must_succeed
    expect([result.stdout, result.stderr]).to match(["3\n", said])
    expect(run_ruby(env: braked, code: "p Memintro.disabled?").must_succeed.stderr).to eq("")
    expect(run_ruby(env: braked, code: "STDERR.close; p Memintro.start").must_succeed.stdout).to eq("false\n")
  end

  it "takes hold in signal handlers and in other Ractors" do
    result = run_ruby(env: braked, flags: ["-W0"], code: <<~RUBY).must_succeed
      trap("USR1") { $answers = [Memintro.start, Memintro.listen, Memintro.track { $ran = true }.live_bytes, $ran] }
      Process.kill(:USR1, $$)
      sleep 0.01 until $answers
      p $answers, Ractor.new { [Memintro.start, Memintro.listen] }.then { |one| one.respond_to?(:value) ? one.value : one.take }
    RUBY
    expect(result.stdout).to eq("[false, nil, 0, true]\n[false, nil]\n")
  end

  it "lets a program start that gets everything wrong, by variables and by arguments" do
    env = { "MEMINTRO_MAX_SITES" => "many", "MEMINTRO_MODE" => "quick", "MEMINTRO_STOP_AFTER" => "soon",
            "MEMINTRO_BY" => "x" }
    code = <<~RUBY
      Memintro.configure { |c| c.mode = :quick }
      p Memintro.configuration.mode, Memintro.start(mode: :quick, sample_bytes: -1), Memintro.listen(name: "a b")
      p Memintro.log_every("often").running?, Memintro.track(max_sites: 0) { 1 }.allocations
    RUBY
    expect(run_ruby(env: env, code: code).stderr).to match(/ArgumentError/)
    result = run_ruby(env: { **env, **braked }, code: code).must_succeed
    expect([result.stdout, result.stderr]).to match([":full\nfalse\nnil\nfalse\n0\n", said])
  end

  { "true" => true, "yes" => true, "2" => true, "0" => false, "false" => false, "off" => false, "" => false }
    .each do |value, held|
    it "#{held ? 'is' : 'is not'} meant by #{value.inspect}, in Ruby and in the hook" do
      code = "p Memintro.disabled?, Memintro.tracking?, Memintro.start, Memintro.tracking?"
      expected = held ? "true\nfalse\nfalse\nfalse\n" : "false\ntrue\ntrue\ntrue\n"
      result = run_ruby(env: braked(value), way: :preloaded, code: code).must_succeed
      expect([result.stdout, result.stderr.lines.size]).to eq([expected, held ? 1 : 0])
      command = [RbConfig.ruby, "-e", "p defined?(Memintro.start)"]
      expect(run_memintro("run", "--report", File::NULL, "--", *command, env: braked(value)).must_succeed.stdout)
        .to eq(held ? "nil\n" : "\"method\"\n")
    end
  end

  describe "below a web server" do
    before { skip PumaServer.missing if PumaServer.missing }

    it "leaves requests to the application, and the log without a line" do
      plain = File.join(Subprocess::ROOT, "spec", "fixtures", "web", "plain.ru")
      settings = { "TRACK" => "1", "MEMINTRO_PUMA_EVERY" => "never", **braked }
      PumaServer.run(plain, env: settings, config: "plugin :memintro\n") do |server|
        expect([server.get("/same/100/3").body.size, server.get("/raise").code]).to eq([300, "500"])
        expect(server.lines).to eq([])
        expect(server.log.lines.grep(/memintro: /).size).to eq(1)
      end
    end

    it "passes requests on with any options, and wraps nothing" do
      result = run_ruby(env: braked, requires: ["memintro/rack"], code: <<~RUBY).must_succeed
        body = Object.new
        answer = [200, {}, body]
        env = { "PATH_INFO" => "/", "rack.response_finished" => [] }
        app = Memintro::Middleware.new(->(_env) { answer }, every: -1, nonsense: true, on_limit: 7)
        p app.call(env).equal?(answer), env
      RUBY
      expect(result.stdout).to eq("true\n{\"PATH_INFO\"=>\"/\", \"rack.response_finished\"=>[]}\n")
    end

    it "leaves Rails its middleware, which passes requests on" do
      found = run_ruby(code: "require 'rails'; require 'action_controller/railtie'", requires: [])
      skip "no Rails for this Ruby here (Debian's ruby-railties)" unless found.success?

      rails = File.join(Subprocess::ROOT, "spec", "fixtures", "web", "rails.ru")
      PumaServer.run(rails, env: { "SETTINGS" => "every=-1,nonsense=1", **braked }) do |server|
        expect(server.get("/posts/7/3000").body.size).to eq(3_000)
        expect([server.lines, server.log.lines.grep(/memintro: /).size]).to eq([[], 1])
      end
    end
  end

  it "runs jobs, and none gets a line" do
    result = run_ruby(env: braked, requires: ["memintro/sidekiq"], code: <<~RUBY).must_succeed
      jobs = Memintro::SidekiqMiddleware.new("every" => "x", every: -1)
      p jobs.call(nil, { "class" => "Import" }, "default") { 42 }
    RUBY
    expect([result.stdout, result.stderr]).to match(["42\n", said])
  end

  it "has mwrap answer as where nothing is tracked, and dump nothing at the end" do
    Tempfile.create("memintro-mwrap") do |file|
      env = { **braked, "MWRAP" => "dump_path:#{file.path}" }
      code = "Mwrap.clear; Mwrap.reset; Mwrap.quiet { 1 }; Mwrap.dump($stdout); p Mwrap.each.to_a, Mwrap['x'], " \
             "Mwrap.total_bytes_allocated"
      result = run_ruby(env: env, requires: ["memintro/mwrap"], code: code).must_succeed
      expect([result.stdout, result.stderr, file.size]).to eq(["[]\nnil\n0\n", "", 0])
    end
  end

  it "makes no socket, for any setting that requests one", :listening do
    code = "puts :ready; p Memintro.listen; trap('USR2') { Memintro.listen }; Process.kill(:USR2, $$); " \
           "fork { Memintro.listen; sleep }; sleep"
    program = start_program(code, env: { "MEMINTRO_LISTEN" => "1", **braked })
    expect(program.line).to eq("nil")
    sleep 0.3
    expect(Dir.children(socket_folder)).to eq([])
  end

  %w[snapshot diff iseqs histogram].each do |name|
    it "has memintro #{name} run its command and look at nothing" do
      result = run_memintro(name, "--", RbConfig.ruby, "-e", "puts 1; exit 3", env: braked)
      expect([result.stdout, result.stderr, result.status.exitstatus]).to eq(["1\n", "", 3])
    end
  end
end
