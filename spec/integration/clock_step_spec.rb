# frozen_string_literal: true

require_relative "../spec_helper"
require "time"
require "tmpdir"

# A wall clock that somebody sets, back and on by days, under Debian's libfaketime. Nothing may stop, hurry, repeat or
# raise for it, and durations stay right.
RSpec.describe "A wall clock that is set" do
  library = Dir["/usr/lib/*/faketime/libfaketimeMT.so.1"].first

  before { skip "no libfaketime here (apt-get install faketime)" unless library }

  # `wall` and `now` are the two clocks, `set_clock` sets the first by days; the last line that is printed comes back.
  define_method(:clocked) do |code, **options|
    helpers = read_program("clock_step/steps.rb")
    Dir.mktmpdir("memintro-clock") do |folder|
      File.write(File.join(folder, "clock"), "+0d")
      env = { "LD_PRELOAD" => library, "FAKETIME_TIMESTAMP_FILE" => File.join(folder, "clock"),
              "FAKETIME_NO_CACHE" => "1", "FAKETIME_DONT_FAKE_MONOTONIC" => "1" }
      run_ruby(code: helpers + code, env: env, chdir: folder, **options).must_succeed
    end
  end

  it "leaves the middleware's durations right, and its lines have the time that there is" do
    skip "no Rack here (Debian's ruby-rack)" unless run_ruby(code: "require 'rack/body_proxy'", requires: []).success?

    result = clocked(<<~'RUBY', requires: ["memintro/rack"])
      log = StringIO.new
      steps = []
      app = Memintro::Middleware.new(->(env) { steps << set_clock(env["days"]) && sleep(0.05) && [200, {}, []] },
                                     logger: log, format: :json, fields: %i[path duration_ms time])
      begun = now
      days = [-1, 1, -30, 0]
      days.each { |day| app.call({ "REQUEST_METHOD" => "GET", "PATH_INFO" => "/#{day}", "days" => day }) }
      put(steps: steps, whole_ms: (now - begun) * 1000, now: wall, lines: log.string.lines.map { |line| JSON.parse(line) })
    RUBY
    answer = result.json
    expect(answer[:steps]).to eq([-1, 2, -31, 30])
    expect(answer[:lines].map { |line| line[:path] }).to eq(%w[/-1 /1 /-30 /0])
    durations = answer[:lines].map { |line| line[:duration_ms] }
    expect(durations).to all(be >= 50)
    expect(durations.sum).to be <= answer[:whole_ms]
    days = answer[:lines].map { |line| ((Time.iso8601(line[:time]).to_f - answer[:now]) / 86_400).round }
    expect(days).to eq([-1, 1, -30, 0])
    expect(result.stderr).to eq("")
  end

  it "neither stops nor hurries the lines of log_every" do
    result = clocked(<<~'RUBY')
      log = StringIO.new
      Memintro.log_every(0.1, log, details: true)
      phases = [0, -1, 1, -30].map do |day|
        set_clock(day) unless day.zero?
        begun, size = now, log.string.lines.size
        eventually("lines on day #{day}") { log.string.lines.size >= size + 4 }
        [log.string.lines.drop(size).size, now - begun, log.string.lines.last]
      end
      put(now: wall, phases: phases)
    RUBY
    answer = result.json
    answer[:phases].each { |lines, seconds, _| expect(lines).to be <= (seconds / 0.1) + 2 }
    times = answer[:phases].map { |_, _, line| Time.strptime(line[/time: (\S+ \S+ \S+)/, 1], "%F %T %z").to_f }
    expect(times.map { |time| ((time - answer[:now]) / 86_400).round }).to eq([30, 29, 31, 0])
    expect(result.stderr).to eq("")
  end

  it "neither stops nor hurries the RSSSampler, whose points keep their order" do
    answer = clocked(read_program("clock_step/sampler.rb")).json
    answer[:phases].each { |samples, seconds| expect(samples).to be <= (seconds / 0.02) + 2 }
    expect(answer).to include(errors: 0, texts: 0, merged: true, days: [30, 29, 31, 0])
    expect(answer[:samples] - answer[:seen]).to be_between(0, 2)
    expect(answer[:rss]).to be > 1_000_000
  end

  it "neither stops tracking before stop_after: is over, nor keeps it from stopping" do
    [1, -1].each do |day|
      answer = clocked(<<~RUBY).json
        begun = now
        Memintro.start(stop_after: 2)
        set_clock(#{day})
        ended = nil
        eventually("the end of tracking") { !Memintro.tracking? && ended = now - begun }
        put(ended: ended)
      RUBY
      expect(answer[:ended]).to be >= 2
    end
  end

  it "is not mistaken for the order of two snapshots, nor for the time between them" do
    answer = clocked(<<~'RUBY').json
      earlier = Memintro.snapshot
      begun = now
      set_clock(-2)
      later = Memintro.snapshot
      diff = later - earlier
      put(seconds: diff.seconds, most: now - begun, notes: diff.notes, apart: later.time - earlier.time)
    RUBY
    expect(answer[:apart]).to be < -86_400
    expect(answer[:seconds]).to be_between(0, answer[:most] + 1)
    expect(answer[:notes]).to eq([])
  end
end
