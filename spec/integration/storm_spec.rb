# frozen_string_literal: true

require "spec_helper"
require "etc"

# No thread in malloc waits for memintro, with any locks held: see docs/design/waiting.md.
RSpec.describe "A process in which everything happens at once", :race do
  # A part that stands still is named after 10 s of silence, also when the storm is over and the parts end. `bin/test
  # --all` lets each storm go on for a minute.
  STORM_SECONDS = Integer(ENV.fetch("STORM_SECONDS", "4"))
  CALM_SECONDS = 4
  LONG_STORM_SECONDS = 60
  LOADED = 3 # threads that run or wait for each processor, before we begin

  # How long a part of the program may be silent. Fourteen threads share one processor, and are silent for one or two
  # seconds in turn; what else runs on the machine comes on top. Beyond some load, 10 s prove no standstill.
  def patience
    runnable = Array.new(20) { sleep(0.05) && (File.read("/proc/loadavg").split[3].to_i - 1) }
    load = runnable.sum.fdiv(runnable.size * Etc.nprocessors)
    return 10 if load < LOADED

    say("30 s of silence are allowed instead of 10: #{load.round(1)} threads for each processor")
    30
  end

  def say(text) = RSpec.configuration.reporter.message(text)

  # The programs are watched from outside: one is killed, and the part is named, if that has not got on. Yields the
  # name and the figures of each; as many run at the same time as there are processors.
  def storms(modes, seconds, env = {})
    arguments = [seconds.to_s, patience.to_s, shared_module("tiny.c"), __FILE__]
    storm = program("storm.c")
    TruthDriver::WAYS.product(modes).each_slice(Etc.nprocessors) do |names|
      threads = names.to_h do |way, mode|
        own_env = mode == "off" && way == :preloaded ? env.merge("MEMINTRO_MODE" => nil) : env
        options = { way: way, env: own_env, deadline_seconds: seconds + 60 }
        ["#{mode} #{way}", Thread.new { run_command(storm, mode, *arguments, **options) }]
      end
      threads.each { |name, thread| yield name, figures_of(thread.value, name) }
    end
  end

  def figures_of(result, name)
    expect(result.status.to_s).to end_with("exit 0"), "#{name}: #{result.status}\n#{result.stderr}"
    figures = result.json
    say("#{name}: #{figures.except(:rounds).map { |pair| pair.join(" ") }.join(", ")}")
    expect(figures[:rounds].values.min).to be >= 1, "#{name}: #{figures}"
    figures
  end

  # The program ends at any other answer to a mark than that it is done, that the figures are lost, or, to a handler
  # upon a reading, that this goes on. A child's figures are lost only where a handler forks upon a recording or a
  # reading, and waits for its own child: no fork can wait for the end of that. After the storm, a child has them.
  def expect_no_standstill(seconds)
    storms(%w[off sampled full], seconds) do |name, figures|
      expect(figures[:lost_alone]).to eq(0), "#{name}: #{figures}"
      # Malloc and free wait for the same recordings, which may hold cells of the table or a place in the queue, and are
      # dropped. A free that was is missed when its address comes again; no other is.
      expect(figures[:missed_frees]).to be <= figures[:dropped], "#{name}: #{figures}"
      expect(figures[:dropped]).to be <= figures[:allocations] / 10, "#{name}: #{figures}"
      expect(figures[:allocations]).to be_positive unless name.start_with?("off")
    end
  end

  # They measure silence, and leave no processor idle.
  it "never stands still: streams, the loader, forks, handlers, births of threads, starts and readings", alone: true do
    expect_no_standstill(STORM_SECONDS)
  end

  it "does not in a minute of each storm", :long, deadline_seconds: 8 * LONG_STORM_SECONDS do
    expect_no_standstill(LONG_STORM_SECONDS)
  end

  def expect_no_loss(seconds)
    storms(%w[sampled full], seconds, { "STORM_CALM" => "1" }) do |name, figures|
      expect(figures).to include(missed_frees: 0, dropped: 0, busy: 0, lost: 0), "#{name}: #{figures}"
      expect([figures[:allocations], figures[:children]]).to all be_positive
    end
  end

  it "loses nothing at all where no handler holds a thread up", alone: true do
    expect_no_loss(CALM_SECONDS)
  end

  it "loses nothing in a minute of each, either", :long, deadline_seconds: 6 * LONG_STORM_SECONDS do
    expect_no_loss(LONG_STORM_SECONDS)
  end

  TruthDriver::WAYS.product(%w[off full sampled]).each do |way, mode|
    it "forks in Ruby while a C library reads lines and flushes all streams, #{way}, #{mode}" do
      env = way == :preloaded ? { "MEMINTRO_MODE" => (mode unless mode == "off") } : {}
      result = run_ruby("streams.rb", shared_module("streams.c"), mode, 25, way: way, env: env, deadline_seconds: 60)
      figures = result.must_succeed.json
      expect(figures).to include(right: 25, wrong_later: 0, tracking: mode != "off", dropped: 0)
      expect([figures[:lines], figures[:flushes]].min).to be > 100
    end
  end
end
