# frozen_string_literal: true

require_relative "../spec_helper"

# One line a job in a real Sidekiq with a real Redis, both Debian's.
RSpec.describe "memintro/sidekiq" do
  before(:all) do
    found = run_ruby(code: "require 'sidekiq'; require 'sidekiq/cli'", requires: [])
    @reason = if !found.success? then "no Sidekiq for this Ruby here (Debian's ruby-sidekiq)"
              elsif !system("redis-server", "--version", out: File::NULL, err: File::NULL)
                "no Redis here (Debian's redis-server)"
              end
  end

  before { skip @reason if @reason }

  jobs = File.join(Subprocess::ROOT, "spec", "fixtures", "web", "jobs.rb")

  around { |example| Dir.mktmpdir("memintro-sidekiq") { |folder| @folder = folder and example.run } }

  after do
    (@pids || []).reverse_each do |pid|
      Process.kill(:TERM, pid)
      wait_or_kill(pid, 40)
    end
  end

  def start(*command, env: {})
    log = File.join(@folder, "#{(@pids ||= []).size}.log")
    @pids << spawn(bare_env.merge(env), *command, in: File::NULL, out: [log, "a"], err: %i[child out], pgroup: true)
    log
  end

  # Until the block gives something.
  def wait(what, log)
    due = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 40
    until (value = yield)
      raise "no #{what} within 40 s\n#{File.read(log)}" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > due

      sleep 0.05
    end
    value
  end

  it "logs each job with the figures of its own thread, to Sidekiq's log" do
    socket = File.join(@folder, "redis.sock")
    redis = start("redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--dir", @folder)
    wait("socket of Redis", redis) { File.socket?(socket) }
    env = { "REDIS_URL" => "unix://#{socket}" }
    log = start(RbConfig.ruby, "-I#{Subprocess::LIB}", "-S", "sidekiq", "-r", jobs, *%w[-q default -q low -c 4 -t 5],
                env: env)
    run_ruby(code: <<~RUBY, requires: ["memintro", jobs], env: env).must_succeed
      4.times { |i| Import.perform_async((i + 1) * 1_000_000) }
      Broken.perform_async
    RUBY
    lines = wait("5 lines", log) { File.readlines(log).grep(/MEMORY/).then { |found| found if found.size >= 5 } }
    imports = lines.grep(/job=Import queue=default/)
    expect(imports.map { |line| line[/malloc_bytes=(\d+)/, 1].to_i / 1_000_000 }.sort).to eq([1, 2, 3, 4])
    expect(imports).to all(match(/ jid=\h{24}$/))
    expect(lines.grep(/job=Broken queue=low .* error=ArgumentError$/).size).to eq(1)
    expect(lines).to all(match(/ INFO: MEMORY job=/))
  end
end
