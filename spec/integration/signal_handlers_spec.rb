# frozen_string_literal: true

require_relative "../spec_helper"

# In a signal handler nothing can be required, and no lock can be had. What methods of Memintro need is loaded all the
# same, and in a finalizer too, which Ruby calls wherever it is. Classes that the program names itself must be there.
RSpec.describe "Memintro in a signal handler", :race do
  # Each asked for the first time, in a process of its own that is interrupted.
  QUESTIONS = {
    start: "Memintro.start && Memintro.stop.allocations",
    start_with_timer: "Memintro.start(stop_after: 60) && Memintro.stop.frees",
    track: "Memintro.track { 'x' * 100_000 }.live_bytes - 100_000",
    totals: "Memintro.totals.live_bytes",
    thread_totals: "Memintro.thread_totals.allocations",
    mark: "Memintro.start && Memintro.mark.to_a.size",
    top: "Memintro.start && Memintro.top(3).size",
    each_call_site: "Memintro.each_call_site.to_a.size",
    by_name: "Memintro['nowhere.rb:1'].to_a.size",
    report: "Memintro.report(out = StringIO.new) || out.string.size",
    json_report: "Memintro.report(out = StringIO.new, format: :json) || out.string.size",
    doctor: "Memintro.doctor.to_s.size",
    configure: "Memintro.configure { |c| c.max_sites = 5 } || Memintro.configuration.to_h.size",
    rss: "Memintro.rss", peak_rss: "Memintro.peak_rss", pss: "Memintro.pss", uss: "Memintro.uss",
    swap: "Memintro.swap", vsize: "Memintro.vsize",
    cgroup: "Memintro.cgroup.to_h.size",
    process_memory: "Memintro::ProcessMemory.new(Process.pid).rss",
    gc_delta: "Memintro.gc_delta { Object.new }.objects_allocated",
    measure: "Memintro.measure { Object.new }.to_s.size",
    compare: "Memintro.compare(rounds: 1, a: -> { 'x' * 100 }, b: -> { 'y' * 200 }).to_s.size",
    iseqs: "Memintro.iseqs.count", each_iseq: "Memintro.each_iseq { |iseq| iseq.bytes }.to_a.size",
    top_iseqs: "Memintro.top_iseqs.size", internals: "Memintro.internals.size",
    histogram: "Memintro.histogram.size", occupancy: "Memintro.occupancy.pages",
    snapshot: "Memintro.snapshot.to_json.size",
    snapshot_of_all: "Memintro.snapshot(:all).inspect.size",
    difference: "(earlier = Memintro.snapshot) && (Memintro.snapshot - earlier).to_s.size",
    sampler: "Memintro::RSSSampler.new.take.rss",
    sampler_thread: "Memintro::RSSSampler.new.start.stop.errors",
    sampler_constant: "Memintro::RSSSampler::Sample::FIGURES.size",
    saved: "Memintro::Snapshot.load(ENV.fetch('SAVED')).pid",
    trend: "Memintro::Trend.new(Array.new(3) { Memintro.snapshot }).to_json.size",
    page: "(earlier = Memintro.snapshot) && (Memintro.snapshot - earlier).to_html.size",
    trend_page: "Memintro::Trend.new(Array.new(3) { Memintro.snapshot }).to_html.size",
    # A handler cannot require a file; if it was required before, the call works.
    get_process_mem: "GetProcessMem.new.kb.to_i",
    log_every: "Memintro.log_every(60, Class.new { def self.info(line) = nil }).stop.to_a.size"
  }.freeze

  # Those whose classes are loaded before: by Memintro.eager_load.
  NAMED = %i[sampler sampler_thread sampler_constant saved trend trend_page].freeze

  # How a process is interrupted by what it is asked.
  INTERRUPTIONS = {
    signal: "trap(:USR2) { asked.call } && Process.kill(:USR2, Process.pid)",
    # Some of these objects the stack does not hold on to.
    finalizer: "50.times { ObjectSpace.define_finalizer(Object.new, proc { asked.call }) } && GC.start"
  }.freeze

  def answers(interruption)
    code = QUESTIONS.map { |name, text| "ask(:#{name}) { #{text} }" }.join("\n")
    saved = run_ruby(code: "puts Memintro.snapshot.to_json").must_succeed.stdout
    file = Tempfile.new("memintro-saved").tap { |io| io.write(saved) && io.flush }
    code = "INTERRUPTION = #{INTERRUPTIONS.fetch(interruption).dump}\nNAMED = #{NAMED}\n" \
           "#{read_program('signal_handlers/asking.rb')}#{code}\nputs JSON.generate($answers)"
    run_ruby(code: code, env: { "SAVED" => file.path }).must_succeed.json
  end

  it "answers every question that can be asked" do
    answers = answers(:signal)
    expect(answers.keys).to eq(QUESTIONS.keys)
    expect(answers.reject { |_, answer| answer.is_a?(Integer) }).to eq({})
    expect(answers[:rss]).to be > 1_000_000
    expect(answers[:iseqs]).to be > 500
    expect(answers[:snapshot]).to be > 1_000
  end

  it "answers all of them in a finalizer too" do
    answers = answers(:finalizer)
    expect(answers.keys).to eq(QUESTIONS.keys)
    expect(answers.reject { |_, answer| answer.is_a?(Integer) }).to eq({})
  end

  it "reads a saved snapshot where Ruby's JSON was not loaded" do
    saved = run_ruby(code: "puts Memintro.snapshot.to_json").must_succeed.stdout
    Tempfile.create("memintro-saved") do |file|
      file.write(saved)
      file.close
      result = run_ruby(nil, file.path, code: <<~'RUBY').must_succeed
        abort "JSON is loaded" if defined?(JSON)
        answer = nil
        Memintro.eager_load
        trap(:USR2) { answer = begin; Memintro::Snapshot.load(ARGV.first).gc.size; rescue Exception => e; e.message; end }
        Process.kill(:USR2, Process.pid)
        sleep 0.01 until answer
        puts answer
      RUBY
      expect(result.stdout.to_i).to be > 10
    end
  end
end
