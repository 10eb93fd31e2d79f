# frozen_string_literal: true

require "spec_helper"

# Nobody in malloc waits for us, whatever locks he holds: see docs/hooking.md, "Who may wait for whom".
RSpec.describe "A process in which everything happens at once" do
  STORM_SECONDS = Integer(ENV.fetch("STORM_SECONDS", "60"))

  # The program is watched from outside: it is killed, and the part is named, if one has not got on for half a minute.
  it "never stands still: streams, the loader, forks, handlers, births of threads, starts and readings" do
    tiny = shared_module("tiny.c")
    storm = program("storm.c")
    results = TruthDriver::WAYS.product(%w[off sampled full]).to_h do |way, mode|
      env = mode == "off" && way == :preloaded ? { "MEMINTRO_MODE" => nil } : {}
      thread = Thread.new do
        options = { way: way, env: env, deadline_seconds: STORM_SECONDS + 60 }
        run_command(storm, mode, STORM_SECONDS.to_s, tiny, __FILE__, **options)
      end
      [[way, mode], thread]
    end
    results.each do |name, thread|
      result = thread.value
      expect(result.status.to_s).to end_with("exit 0"), "#{name.join(' ')}: #{result.status}\n#{result.stderr}"
      parts = result.json
      totals = %i[allocations missed_frees dropped].to_h { |figure| [figure, parts.delete(figure)] }
      expect(parts.values.min).to be >= 1, "#{name.join(' ')}: #{parts}"
      expect(totals[:allocations]).to be_positive unless name.last == "off"
    end
  end

  TruthDriver::WAYS.product(%w[off full sampled]).each do |way, mode|
    it "forks in Ruby while a C library reads lines and flushes all streams, #{way}, #{mode}" do
      env = way == :preloaded ? { "MEMINTRO_MODE" => (mode unless mode == "off") } : {}
      result = run_ruby("streams.rb", shared_module("streams.c"), mode, 25, way: way, env: env, deadline_seconds: 60)
      figures = result.must_succeed.json
      expect(figures).to include(right: 25, tracking: mode != "off", dropped: 0)
      expect([figures[:lines], figures[:flushes]].min).to be > 100
    end
  end
end
