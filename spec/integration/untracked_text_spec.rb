# frozen_string_literal: true

require_relative "../spec_helper"
require "tmpdir"

# Looking at figures must not change them: what a console or a one-liner shows is made outside of tracking.
RSpec.describe "What inspect and to_s allocate" do
  # Prints the bytes and calls that the current thread asked malloc for while each of them was shown, many times over.
  def shown
    run_ruby(code: <<~'RUBY').must_succeed.json
      require "json"
      require "memintro/sampler"
      require "memintro/trend"
      Memintro.start
      kept = Array.new(2_000) { |i| eval("'x' * (1_000 + i)", nil, "a/long/path/to/file#{i}.rb", i + 1) }
      before = Memintro.snapshot
      snapshots = [before, *Array.new(3) { kept << ("y" * 100_000); Memintro.snapshot }]
      figures = { top: Memintro.top, site: Memintro.top(1).first, totals: Memintro.totals,
                  thread_totals: Memintro.thread_totals, snapshot: snapshots.last, diff: snapshots.last - before,
                  change: (snapshots.last - before).memory.first, trend: Memintro::Trend.new(snapshots),
                  histogram: Memintro.histogram, iseqs: Memintro.iseqs, top_iseqs: Memintro.top_iseqs(20),
                  iseq: Memintro.each_iseq.first, internals: Memintro.internals, occupancy: Memintro.occupancy,
                  process: Memintro::ProcessMemory.new(Process.pid), sample: Memintro::RSSSampler.new.take,
                  gc_delta: Memintro.gc_delta { nil }, doctor: Memintro.doctor, configuration: Memintro.configuration }
      # Ruby's own caches at each line that shows them.
      show = ->(figure) { 30.times { figure.inspect && figure.to_s } }
      figures.each_value(&show)
      GC.start
      GC.disable
      bytes = figures.transform_values do |figure|
        traffic = Memintro::Native.thread_traffic
        show[figure]
        Memintro::Native.thread_traffic.zip(traffic)[1].reduce(:-)
      end
      mine = Memintro.top(nil).map(&:name).grep(%r{/(estimates|units|list|call_site|totals|value_object)\.rb:})
      texts = figures.transform_values { |figure| figure.inspect.bytesize }
      puts JSON.generate(bytes: bytes, mine: mine, texts: texts)
    RUBY
  end

  it "is in no figure" do
    answer = shown
    expect(answer[:texts].values).to all(be > 20)
    expect(answer[:texts][:top]).to be > 2_000
    # Two blocks that hold a call's frames, or the like, may be Ruby's own; a text would be 30 times its size.
    expect(answer[:bytes]).to all(satisfy { |_name, bytes| bytes.between?(0, 600) })
    expect(answer[:mine]).to eq([])
  end

  it "is a text also where the extension is not loaded, which showing does not load" do
    Dir.mktmpdir do |folder|
      %w[list value_object untracked_text units].each do |name|
        FileUtils.cp(File.join(Subprocess::LIB, "memintro/support", "#{name}.rb"), folder)
      end
      answer = run_ruby(code: <<~RUBY, requires: ["#{folder}/value_object", "#{folder}/list"], chdir: folder)
        class Pair
          include Memintro::ValueObject
          ATTRIBUTES = %i[a].freeze
          def a = 1
          def inspect = "#<Pair \#{a}>"
          alias to_s inspect
        end
        puts Memintro::List.new([Pair.new, 2]).inspect, Pair.new.to_s, defined?(Memintro::Native).inspect
      RUBY
      expect(answer.must_succeed.stdout).to eq("#<Memintro::List 2 rows:\n  #<Pair 1>\n  2>\n#<Pair 1>\nnil\n")
    end
  end
end
