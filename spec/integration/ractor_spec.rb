# frozen_string_literal: true

require_relative "../spec_helper"

# Every method of Memintro in a Ractor: it answers, or says what to do. And what is loaded when it is first used, first
# used in a Ractor.
RSpec.describe "Memintro in a Ractor" do
  def answers(code, requires: ["memintro"], **options)
    helpers = <<~'RUBY'
      def asked = yield.to_s rescue "#{$!.class}: #{$!.message}"
      def answer_of(ractor) = ractor.respond_to?(:value) ? ractor.value : ractor.take
    RUBY
    result = run_ruby(code: helpers + code, requires: requires, flags: ["-W0"], **options)
    result.must_succeed.stdout.lines
  end

  around do |example|
    Dir.mktmpdir do |folder|
      @file = File.join(folder, "s.json")
      run_ruby(nil, @file, code: "Memintro.snapshot(:all).save(ARGV.first)").must_succeed
      example.run
    end
  end

  def self.main_only(call)
    "Memintro::RactorError: Memintro.#{call[/\A[\w?]+|\A\[\]/]} works only in the main Ractor; call it there, " \
      "or send the main Ractor a message to call it."
  end

  # Each call with what it answers in a Ractor: a class, or how the error begins.
  def self.table
    main = ["start", "start(mode: :full, stop_after: nil, max_tracker_bytes: nil, max_sites: nil)", "stop", "tracking?",
            "mode", "preloaded?", "track { 1 }", "mark", "clear", "totals", "thread_totals", "each_call_site { break }",
            "each_call_site.first", "top", "top(1, by: :growth, older_than_gcs: 1)", "[]('(boot)')", "report($stderr)",
            "report($stderr, format: :json, app_root: '/')", "doctor", "configuration", "configure { |c| c.top = 1 }",
            "listen", "listen(name: 'web')", "log_every", "measure {}", "compare(a: proc {}, b: proc {})",
            "default_figure", "stacks", "account", "leaks", "trim", "heap_dump('/tmp/x')",
            "holders(String)", "largest", "referrers('x')", "path_to_root('x')", "retained_size('x')", "find(limit: 1)",
            "heap_counts", "roots", "stack_dump", "eager_load", "snapshot", "hunt",
            "hunting?", "stop_hunting", "findings"]
    several = "Memintro::RactorError: 2 Ractors are alive, and memintro can read the heap only while there is one"
    walks = ["iseqs", "each_iseq { break }", "top_iseqs", "internals", "histogram", "occupancy",
             "occupancy_and_counters"]
    figures = %w[rss peak_rss pss uss swap vsize]
    { **main.to_h { |call| [call, main_only(call)] }, **walks.to_h { |call| [call, several] },
      **figures.to_h { |call| [call, "Integer"] },
      "disabled?" => "FalseClass", "untracked { :value }" => "Symbol", "gc_delta {}" => "Memintro::GcDelta",
      "cgroup" => /\A(NilClass|Memintro::Cgroup)$/,
      "ProcessMemory.new(Process.pid).rss" => "Integer" }
  end

  not_listening = { "listening?" => "FalseClass", "stop_listening" => "FalseClass" }
  # Ruby loads nothing in a Ractor.
  not_loaded = { "RSSSampler.new" => /\ARactor::UnsafeError: require by autoload .*RSSSampler\)$/ }
  listening = not_listening.to_h { |call, _| [call, main_only(call)] }
  loaded = { "RSSSampler.new" => "Memintro::RactorError: a sampler can be made only in the main Ractor" }

  {
    "where nothing was asked before" => ["", not_listening.merge(not_loaded)],
    "where the main one has asked everything, tracks and listens" => [<<~RUBY, listening.merge(loaded)]
      Memintro.start
      Memintro.configure { |c| c.top = 5 }
      [Memintro.top, Memintro.doctor, Memintro.snapshot, Memintro.listen, Memintro.gc_delta {}, Memintro.cgroup]
      Memintro.log_every(600, $stderr).stop
      Memintro::RSSSampler
    RUBY
  }.each do |state, (before, of_listening)|
    it "answers, or says that the main one does, for each method, #{state}" do
      rows = self.class.table.merge(of_listening)
      lines = answers(<<~RUBY, env: { "MEMINTRO_SOCKET_FOLDER" => File.join(File.dirname(@file), "s") })
        #{before}
        puts answer_of(Ractor.new(#{rows.keys.inspect}) { |calls|
          calls.map { |call| asked { eval("Memintro::" + call).class }.lines.first.chomp }
        })
      RUBY
      expected = rows.transform_values { |answer| answer.is_a?(Regexp) ? match(answer) : start_with(answer) }
      expect(rows.keys.zip(lines).to_h).to match(expected)
    end
  end

  it "has been asked every method that Memintro has" do
    asked = [*self.class.table.keys, *not_listening.keys].map { |call| call[/\A[\w?]+|\A\[\]/] }.grep(/\A[a-z\[]/)
    own = %i[epoch listen_if_asked hunt_if_asked lend_tracking reclaim_tracking take_back_tracking setting]
    result = run_ruby(code: "puts Memintro.singleton_methods - #{own.inspect}").must_succeed
    expect(result.stdout.split).to match_array(asked.uniq)
  end

  it "goes on tracking after any refused call, and mentions no Ractor if there is none" do
    lines = answers(<<~RUBY)
      Memintro.start
      refused = answer_of(Ractor.new {
        %w[stop clear mark].map { |name| asked { Memintro.public_send(name) } } << asked { Memintro.track { } }
      })
      puts refused.size, Memintro.tracking?, Memintro.epoch, Memintro.top.size.positive?, Memintro.stop.allocations > 1
    RUBY
    expect(lines.map(&:chomp)).to eq(%w[4 true 1 true true])
    alone = run_ruby(code: "Memintro.start; Memintro.top; Memintro.mark; Memintro.doctor; Memintro.stop", flags: ["-w"])
    expect(alone.must_succeed.stderr).to eq("")
  end

  it "loads nothing, and names what is not loaded" do
    lines = answers(<<~RUBY)
      puts answer_of(Ractor.new {
        [asked { Memintro::RSSSampler.new }, asked { Memintro::Trend.new([]) }, asked { Memintro::Snapshot.load("s.json") },
         asked { Memintro::Snapshot::Parts }]
      })
    RUBY
    names = %w[RSSSampler Trend Snapshot Snapshot]
    expect(lines).to match(names.map { |name| /\ARactor::UnsafeError: require by autoload .*\((Memintro::)?#{name}\)/ })
  end

  it "answers what the collector did, how near the container's limit is, and what GetProcessMem is asked" do
    lines = answers(<<~RUBY, requires: %w[memintro memintro/get_process_mem])
      main = [Memintro.cgroup&.path.inspect, GetProcessMem.new.mb, Memintro.gc_delta {}]
      delta, cgroup, mem, nested = answer_of(Ractor.new {
        3.times { Memintro.gc_delta { 1_000.times { Object.new } } }
        [asked { Memintro.gc_delta { 1_000.times { Object.new } }.objects_allocated }, asked { Memintro.cgroup&.path.inspect },
         asked { [GetProcessMem.new.mb, GetProcessMem.new(Process.pid).bytes / (1 << 20)].map(&:to_f).join(" ") },
         asked { Memintro.gc_delta { Memintro.gc_delta { GC.start } }.major_gc_count }]
      })
      puts delta, cgroup == main[0], mem.split.all? { |mb| (Float(mb) - main[1]).abs < 16 }, nested
    RUBY
    # The count is of all Ractors, and the main one makes an object or two while it waits.
    expect(Integer(lines[0], 10)).to be_between(1_000, 1_200)
    expect(lines[1, 2]).to eq(%W[true\n true\n])
    expect(Integer(lines[3], 10)).to be >= 1
  end

  it "reads and compares snapshots when that was done" do
    lines = answers(<<~RUBY, requires: %w[memintro memintro/trend])
      abort "JSON is loaded" if defined?(JSON)
      puts answer_of(Ractor.new(#{@file.inspect}) { |file|
        loaded = Memintro::Snapshot.load(file)
        [asked { loaded.pid.positive? }, asked { loaded.inspect.size > 300 }, asked { (loaded - loaded).to_html.size > 1_000 },
         asked { (loaded - loaded).classes.size }, asked { Memintro::Trend.new([loaded] * 3).growing.size }]
      })
    RUBY
    expect(lines.map(&:chomp)).to eq(%w[true true true 0 0])
  end
end
