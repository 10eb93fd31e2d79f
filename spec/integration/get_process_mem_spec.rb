# frozen_string_literal: true

require_relative "../spec_helper"

# require "memintro/get_process_mem": the names and types of the gem get_process_mem, and its answers.
RSpec.describe "memintro/get_process_mem" do
  GEM_ANSWERS = Subprocess.read_program("get_process_mem/gem_answers.rb")

  def answers(feature, requires: ["memintro"])
    run_ruby(code: GEM_ANSWERS, requires: [*requires, feature])
  end

  it "answers as the gem does, with its types" do
    gem = answers("get_process_mem", requires: [])
    skip "the gem is not installed (ruby-get-process-mem)" if gem.stderr.include?("LoadError")
    theirs = gem.must_succeed.json
    ours = answers("memintro/get_process_mem").must_succeed.json
    expect(theirs[:types]).to eq(%w[BigDecimal Float Float Float BigDecimal TrueClass])
    exact = %i[types other_types pid given gone shape constants files nowhere odd own conversion round_up names]
    expect(ours.slice(*exact)).to eq(theirs.slice(*exact))
    expect(theirs[:methods] - ours[:methods]).to eq([])
    expect(ours[:bytes]).to be_within(1 << 20).of(ours[:kernel])
    expect(theirs[:bytes]).to be_within(1 << 20).of(theirs[:kernel])
  end

  it "has the gem's types also where the gem is not installed" do
    skip "no bigdecimal here" if run_ruby(code: "require 'bigdecimal'", requires: []).stderr.include?("LoadError")
    types = %w[BigDecimal Float Float Float BigDecimal TrueClass]
    smaps = ((17 << 10) + (2 << 20)).to_f # each of its three figures half a unit greater
    expected = {
      types: types, given: [2.0, 1.0, 2.0], gone: [0.0, 0.0, 0.0], odd: [["BigDecimal", 0.0]] * 6,
      pid: [true, true], shape: "#<GetProcessMem:Nx @mb=N @gb=N @kb=N @bytes=N>",
      own: [[true, "BigDecimal", true, true], [true, "BigDecimal", true, false]],
      conversion: { kb: 1 << 10, mb: 1 << 20, gb: 1 << 30 }, round_up: 0.5,
      files: include(status: [["BigDecimal", 1_263_616.0], ["NilClass", nil]],
                     smaps: [["NilClass", nil], ["BigDecimal", smaps]])
    }
    expect(answers("memintro/get_process_mem").must_succeed.json).to include(expected)
  end

  it "needs no bigdecimal, which a bundle may lack" do
    Dir.mktmpdir do |folder|
      File.write("#{folder}/bigdecimal.rb", 'raise LoadError, "cannot load such file -- bigdecimal"')
      answer = run_ruby(code: <<~RUBY, flags: ["-I#{folder}"], requires: ["memintro/get_process_mem"]).must_succeed.json
        require "json"
        memory = GetProcessMem.new
        smaps = File::NULL.then { Struct.new(:each_line).new(["Rss: 4 kB\n", "Rss: 8 kB\n"].each) }
        puts JSON.dump(types: [memory.bytes, memory.mb].map { |figure| figure.class.name }, smaps: memory.linux_memory(smaps).to_f,
                       close: (memory.bytes - Memintro.rss).abs < (4 << 20), text: memory.inspect[/@bytes=\\d+>/] != nil)
      RUBY
      expect(answer).to eq(types: %w[Rational Float], smaps: 13_312.0, close: true, text: true)
    end
  end

  it "stands in for the gem: requiring that afterwards changes nothing" do
    result = run_ruby(code: <<~RUBY, requires: ["memintro/get_process_mem"])
      p require("get_process_mem"), GetProcessMem.instance_method(:bytes).source_location[0].end_with?("memintro/get_process_mem.rb")
    RUBY
    expect([result.must_succeed.stdout, result.stderr]).to eq(["false\ntrue\n", ""])
  end

  it "leaves the gem alone where it was there first" do
    result = run_ruby(code: "p GetProcessMem.new", requires: %w[get_process_mem memintro/get_process_mem])
    skip "the gem is not installed (ruby-get-process-mem)" if result.stderr.include?("LoadError")
    expect([result.must_succeed.stdout[/\A#<GetProcessMem/], result.stderr]).to eq(["#<GetProcessMem", ""])
  end

  it "answers for the child after a fork" do
    answer = run_ruby(code: <<~'RUBY', requires: ["memintro/get_process_mem"]).must_succeed.json
      require "json"
      text = "x" * (64 << 20)
      reader, writer = IO.pipe
      before = GetProcessMem.new
      Process.wait(fork { text.clear; GC.start; writer.write(Marshal.dump([GetProcessMem.new.mb, before.mb, before.pid])) })
      writer.close
      child, parent, pid = Marshal.load(reader.read)
      puts JSON.generate(child: child, parent: parent, own: pid == Process.pid)
    RUBY
    expect(answer[:parent] - answer[:child]).to be > 50
    expect(answer[:own]).to be(true)
  end
end
