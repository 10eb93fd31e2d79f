# frozen_string_literal: true

require_relative "../spec_helper"

# require "memintro/get_process_mem": the names and types of the gem get_process_mem, and its answers.
RSpec.describe "memintro/get_process_mem" do
  GEM_ANSWERS = <<~'RUBY'
    require "json"
    mem = GetProcessMem.new
    other = GetProcessMem.new(Process.ppid)
    gone = GetProcessMem.new(2**22)
    describe = ->(m) { [m.bytes, m.kb, m.mb, m.gb, m.linux_status_memory, m.linux?].map { |value| value.class.name } }
    # The number itself differs from read to read.
    shape = ->(m) { m.inspect.gsub(/0x\h+/, "0x").gsub(/\d[\d.]*(e-?\d+)?/, "N") }
    puts JSON.generate(
      types: describe[mem], other_types: describe[other], pid: [mem.pid == Process.pid, other.pid == Process.ppid],
      given: [mem.kb(2048), mem.mb(1 << 20), mem.gb(1 << 31)], gone: [gone.kb, gone.mb, gone.gb],
      shape: shape[mem], constants: [GetProcessMem::KB_TO_BYTE, GetProcessMem::MB_TO_BYTE, GetProcessMem::GB_TO_BYTE].map(&:to_i),
      methods: GetProcessMem.public_instance_methods(false).sort - %i[darwin_memory], bytes: mem.bytes.to_i,
      kernel: File.read("/proc/self/status")[/^VmRSS:\s+(\d+)/, 1].to_i * 1024
    )
  RUBY

  def answers(feature, requires: ["memintro"])
    run_ruby(code: GEM_ANSWERS, requires: [*requires, feature])
  end

  it "answers as the gem does, with its types" do
    gem = answers("get_process_mem", requires: [])
    skip "the gem is not installed (ruby-get-process-mem)" if gem.stderr.include?("LoadError")
    theirs = gem.must_succeed.json
    ours = answers("memintro/get_process_mem").must_succeed.json
    expect(theirs[:types]).to eq(%w[BigDecimal Float Float Float BigDecimal TrueClass])
    exact = %i[types other_types pid given gone shape constants]
    expect(ours.slice(*exact)).to eq(theirs.slice(*exact))
    expect(theirs[:methods] - ours[:methods]).to eq([])
    expect(ours[:bytes]).to be_within(1 << 20).of(ours[:kernel])
    expect(theirs[:bytes]).to be_within(1 << 20).of(theirs[:kernel])
  end

  it "has the gem's types also where the gem is not installed" do
    types = %w[BigDecimal Float Float Float BigDecimal TrueClass]
    expect(answers("memintro/get_process_mem").must_succeed.json)
      .to include(types: types, given: [2.0, 1.0, 2.0], gone: [0.0, 0.0, 0.0])
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
