# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/listening"
require_relative "../support/native_programs"
require_relative "../support/stories"
require "rbconfig"
require "tmpdir"

# Seven leaks, each asked for by one command: of the running process, and of a dump of it. The first line names the
# guilty holder.
RSpec.describe "who holds it, asked from a shell", :listening, :native do
  around { |example| Dir.mktmpdir("memintro-stories") { |folder| (@folder = folder) && example.run } }

  def extension
    folders = %w[rubyhdrdir rubyarchhdrdir].map { |name| "-I#{RbConfig::CONFIG.fetch(name)}" }
    source = File.join(NativePrograms::MODULES, "registered.c")
    NativePrograms.build(source, "registered.so", ["-shared", "-fPIC", "-Wno-unused-parameter", *folders])
  end

  # The program, and the end by which it is told to go on.
  def stories
    theirs, input = IO.pipe
    script = File.join(Subprocess::ROOT, "spec/fixtures/scripts/held_stories.rb")
    program = start_program("load ARGV.shift", script, extension, requires: [], in: theirs)
    theirs.close
    [program, input]
  end

  def first_line(*arguments) = memintro(*arguments).must_succeed.stdout.lines.first.chomp

  it "says it of a running process, of its lines and ages, and of a dump" do
    program, @input = stories # an end that nothing refers to is closed
    told = HeldStories::ALL.transform_values { |name, _| first_line("holders", program.pid, "--class", name) }
    expect(told).to match(HeldStories::ALL.transform_values { |_, line| match(line) })
    dump = File.join(@folder, "a.ndjson.zst")
    memintro("heap-dump", program.pid, "-o", dump).must_succeed
    told = HeldStories::ALL.transform_values { |name, _| first_line("heap", "holders", "--class", name, dump) }
    expect(told).to match(HeldStories::ALL.transform_values { |_, line| match(line) })

    site = ["--site", "stories.rb:#{site_of('stories.rb', '500.times { $bus.publish')}", "--older-than-gcs", "2"]
    expect(first_line("holders", program.pid, "--class", "Message", *site))
      .to match(/\A500 of 500 Message from stories\.rb:\d+ that outlived 2 collections \(19\.5 KiB\): Archive\#@recent/)
    expect(first_line("heap", "holders", *site, dump))
      .to match(/\A500 of 50\d objects from .* \(.*KiB\): Archive\#@recent/)
    json = JSON.parse(memintro("holders", program.pid, "--class", "Cached", "--json", "-n", "1").must_succeed.stdout)
    expect(json).to include("pid" => program.pid, "objects" => 500, "bytes" => 500 * 40, "more_groups" => 0)
    expect(json["groups"].first["holders"].first).to include("class_name" => "Hash", "type" => "HASH", "edge" => "[]")
    wrong = memintro("holders", program.pid, "--class", "Nothing")
    expect([wrong.status.exitstatus, wrong.stderr]).to match([1, /there is no object that fits: Nothing/])
  end

  # The first line on which a script has this.
  def site_of(script, text)
    lines = File.readlines(File.join(Subprocess::SCRIPTS, script))
    lines.index { |line| line.include?(text) } + 1
  end

  it "says from two dumps, and from three, what has piled up" do
    program, input = stories
    dumps = %w[1 2 3].map do |name|
      File.join(@folder, "#{name}.ndjson").tap do |file|
        memintro("heap-dump", program.pid, "-o", file).must_succeed
        input.puts
        program.line
      end
    end
    expect(first_line("heap", "diff", *dumps.first(2))).to match(/most of it 3,000 Message \(.*held_stories\.rb:\d+/)
    kept = memintro("heap", "diff", *dumps).must_succeed.stdout
    expect(kept.lines.first).to match(/most of it 3,000 Message \(.*held_stories\.rb:\d+/)
    expect(first_line("heap", "holders", "--class", "Message", dumps.last))
      .to match(/\A6,500 of 6,500 Message \(253\.9 KiB\): Archive\#@recent/)
  end

  it "does not say what strings of the users hold" do
    program, @input = stories # an end that nothing refers to is closed
    expect(memintro("holders", program.pid, "--class", "Cached", "-n", "1000").must_succeed.stdout)
      .not_to include("secret")
  end

  it "says plainly what is wrong" do
    program = start_program("Memintro.listen; puts :ready; sleep")
    said = lambda do |*words|
      result = memintro("holders", *words)
      [result.status.exitstatus, result.stderr]
    end
    expect(said[program.pid]).to match([2, /give --class NAME, --site PATH:LINE or --older-than-gcs N/])
    expect(said[program.pid, "--older-than-gcs", "x"]).to match([2, /--older-than-gcs is "x"/])
    expect(said[program.pid, "--site", "a.rb:1"])
      .to match([1, /objects are not tracked.*memintro start PID --objects/m])
    expect(said[program.pid, "--class", "Strin"]).to match([1, /no object that fits: Strin; there are .*String/])
    expect(said["999999999", "--class", "String"].first).to eq(1)
  end

  it "ends with a process that is killed meanwhile" do
    program = start_program("Memintro.listen; kept = Array.new(1_500_000) { |i| [i] }; puts :ready; sleep")
    asking = Thread.new { memintro("holders", program.pid, "--class", "Array") }
    # The copy is a child of the thread that answers.
    eventually { Dir["/proc/#{program.pid}/task/*/children"].any? { |list| !File.read(list).strip.empty? } }
    program.kill
    result = asking.value
    expect(result.status.exitstatus).to eq(1)
    expect(result.stderr).to include("process #{program.pid} ended, or stopped listening, before it had answered")
  end
end
