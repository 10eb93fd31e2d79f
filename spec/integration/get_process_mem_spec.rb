# frozen_string_literal: true

require_relative "../spec_helper"

# require "memintro/get_process_mem": the names and types of the gem get_process_mem, and its answers.
RSpec.describe "memintro/get_process_mem" do
  GEM_ANSWERS = <<~'RUBY'
    require "json"
    require "pathname"
    mem = GetProcessMem.new
    other = GetProcessMem.new(Process.ppid)
    gone = GetProcessMem.new(2**22)
    describe = ->(m) { [m.bytes, m.kb, m.mb, m.gb, m.linux_status_memory, m.linux?].map { |value| value.class.name } }
    # The number itself differs from read to read.
    asked = lambda do |&question|
      value = question.call
      [value.class.name, value&.to_f]
    rescue Exception => e
      e.class.name
    end
    # Any object that has lines.
    files = { status: "Name:\tx\nVmRSS:\t    1234 kB\n", mega: "VmRSS: 2 MB\n", none: "Name:\tx\n", short: "VmRSS: 2\n", empty: "",
              smaps: "7f-80 r--p\nSize: 8 kB\nRss:    4 kB\nPss:  1 kB\nRss:   12 kB\nRss:   1.5 MB\n" }
    given = files.transform_values do |text|
      require "stringio"
      [asked.call { mem.linux_status_memory(StringIO.new(text)) }, asked.call { mem.linux_memory(StringIO.new(text)) }]
    end
    nowhere = [asked.call { mem.linux_status_memory(Pathname.new("/no/such")) }, asked.call { mem.linux_memory(Pathname.new("/no/such")) }]
    # What is no process.
    odd = ["abc", "", nil, -1, "1x", :abc].map { |pid| asked.call { m = GetProcessMem.new(pid); [m.kb, m.linux?, m.pid] && m.bytes } }
    own = [GetProcessMem.new("self"), GetProcessMem.new(Process.pid.to_s)].map { |m| [m.mb > 5, m.bytes.class.name, m.linux?, m.pid == "self"] }
    shape = ->(m) { m.inspect.gsub(/0x\h+/, "0x").gsub(/\d[\d.]*(e-?\d+)?/, "N") }
    puts JSON.generate(
      types: describe[mem], other_types: describe[other], pid: [mem.pid == Process.pid, other.pid == Process.ppid],
      given: [mem.kb(2048), mem.mb(1 << 20), mem.gb(1 << 31)], gone: [gone.kb, gone.mb, gone.gb],
      files: given, nowhere: nowhere, odd: odd, own: own, conversion: GetProcessMem::CONVERSION.transform_values(&:to_i),
      round_up: GetProcessMem::ROUND_UP.to_f, names: GetProcessMem.constants.grep(/RUNS|CONV|ROUND|BYTE/).sort,
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
    exact = %i[types other_types pid given gone shape constants files nowhere odd own conversion round_up names]
    expect(ours.slice(*exact)).to eq(theirs.slice(*exact))
    expect(theirs[:methods] - ours[:methods]).to eq([])
    expect(ours[:bytes]).to be_within(1 << 20).of(ours[:kernel])
    expect(theirs[:bytes]).to be_within(1 << 20).of(theirs[:kernel])
  end

  it "has the gem's types also where the gem is not installed" do
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
