# frozen_string_literal: true

require "fileutils"
require "stringio"
require "tmpdir"
require_relative "../spec_helper"
require_relative "../../rakelib/spec/side_by_side"

# `rake spec` runs once more, by itself, what failed beside others.
RSpec.describe SideBySide do
  around do |example|
    Dir.mktmpdir do |folder|
      @folder = folder
      example.run
    end
  end

  # The beginning of an example's body: true only in the first process that comes here.
  FIRST = 'first = begin; File.open(__FILE__ + ".ran", "wx").close; true; rescue Errno::EEXIST; false; end'

  # An example's body that runs out of time in the first process that comes here.
  LATE = "#{FIRST}; raise 'it did not happen within 9 s' if first".freeze
  FAILED_ONCE = "failed_once.txt"

  # Runs spec files of these bodies; gives whether all have passed, and what was printed.
  def run(arguments = [], files:, **options)
    paths = files.map do |name, body|
      File.join(@folder, "#{name}_spec.rb").tap do |path|
        File.write(path, "RSpec.configure { |c| c.define_derived_metadata { |m| m[:beside] = !m[:alone] } }\n" \
                         "RSpec.describe('#{name}') do\n#{body}\nend\n")
      end
    end
    output = StringIO.new
    passed = described_class.new(arguments, files: paths, task: "logs", logs: @folder, output: output,
                                            failed_once: File.join(@folder, FAILED_ONCE), **options).run
    [passed, output.string]
  end

  def failed_once = File.read(File.join(@folder, FAILED_ONCE))

  it "passes, and repeats nothing, where nothing fails" do
    passed, text = run(files: { "good" => "it('is') { }", "skipped" => "it('waits') { skip 'no cat' }" })
    expect([passed, text.lines.last]).to eq([true, "2 examples, 0 failures, 1 pending\n"])
    expect(text).to include("Left out:\n  1 x no cat\n")
    expect(text).not_to match(/again/i)
  end

  it "passes where an example failed once, names it with what it said, and keeps it in a file" do
    chance = "it('is good') { }\nit('is late') { #{LATE} }"
    2.times do |number|
      passed, text = run(files: { "good" => "it('is') { }", "chance#{number}" => chance })
      expect([passed, text.lines.last])
        .to eq([true, "3 examples, 0 failures, 0 pending, 1 failed once and passed when run again\n"])
      listed = text[/^Failed beside others, passed when run again by themselves:\n.*?\n\n/m]
      expect(listed).to match(/chance\d_spec\.rb:4 # chance\d is late\n +it did not happen within 9 s/)
      expect(text).not_to match(/^Failed:/)
    end
    expect(failed_once.scan(/UTC, failed once:\n  rspec \S+chance(\d)_spec\.rb:4 # chance\d is late$/)).to eq([["0"],
                                                                                                               ["1"]])
    expect(failed_once.scan(/^ +RuntimeError:\n +it did not happen within 9 s$/).size).to eq(2)
  end

  it "passes where an expectation failed once" do
    passed, = run(files: { "expected" => "it('is') { #{FIRST}; expect(first ? 'bad' : 'good').to eq('good') }" })
    expect(passed).to be(true)
    expect(failed_once).to match(/failed once:\n  rspec \S+expected_spec\.rb:3 # expected is\n.*expected: "good"/m)
  end

  it "repeats nothing of a file about races" do
    passed, text = run(files: { "races" => "it('waits', :race) { #{LATE} }" })
    expect([passed, text.lines.last]).to eq([false, "1 examples, 1 failures, 0 pending\n"])
    expect(text).not_to match(/again/i)
  end

  it "fails where one of two that failed fails again" do
    passed, text = run(files: { "chance" => "it('is late') { #{LATE} }",
                                "wrong" => "it('is good') { }\nit('is wrong') { raise 'wrong' }" })
    expect([passed, text.lines.last])
      .to eq([false, "3 examples, 1 failures, 0 pending, 1 failed once and passed when run again\n"])
    expect(text).to match(/^Failed:\n  rspec \S+wrong_spec\.rb:4 # /)
  end

  it "fails where an example always fails after those before it, though not without them" do
    order = "it('spoils') { $spoilt = true }\nit('is spoilt') { raise 'it did not end within 1 s' if $spoilt }"
    passed, text = run(files: { "order" => order })
    expect([passed, text.lines.last]).to eq([false, "2 examples, 1 failures, 0 pending\n"])
  end

  it "fails where another example of the process fails when it runs again" do
    swapped = "#{FIRST}\nit('is good') { raise 'no' unless first }\n" \
              "it('is late') { raise 'not over after 9 s' if first }"
    passed, text = run(files: { "swapped" => swapped })
    expect([passed, text.lines.last])
      .to eq([false, "2 examples, 1 failures, 0 pending, 1 failed once and passed when run again\n"])
  end

  it "fails where what failed is not there, or skipped, when it should run again" do
    gone = "#{FIRST}\nit('is good') { }\nif first\n  it('goes') { raise 'not over after 9 s' }\nend"
    skipped = "it('is good') { }\nit('is skipped') { #{FIRST}; first ? raise('not over after 9 s') : skip('later') }"
    expect(run(files: { "gone" => gone }).first).to be(false)
    expect(run(files: { "skipped" => skipped }).first).to be(false)
  end

  it "repeats all files of a process that was ended for it took too long" do
    stuck = "it('is good') { }\nit('is stuck') { #{FIRST}; sleep if first }"
    passed, text = run(files: { "beside" => "it('is') { }", "stuck" => stuck }, most_seconds: 8)
    expect(passed).to be(true)
    expect(text).to match(/\d s +3 ok +again: beside, stuck\n/)
    expect(text).to match(/^Failed beside others.*:\n  rspec \S+ \S+stuck_spec\.rb # did not run to its end/)
    expect(text.lines.last).to end_with(", 1 failed once and passed when run again\n")
    expect(failed_once).to match(/failed once:\n  \S+beside_spec\.rb\n  \S+stuck_spec\.rb$/)
  end

  it "fails where a process is killed, or takes too long again" do
    killed = "it('dies') { Process.kill(:KILL, $$) }"
    expect(run(files: { "killed" => killed })).to match([false, /did not run to its end/])
    passed, text = run(files: { "stuck" => "it('sleeps') { sleep }" }, most_seconds: 1)
    expect(passed).to be(false)
    expect(text).to match(/again: stuck$.*^Failed:\n  rspec \S+stuck_spec\.rb # did not run to its end/m)
  end

  it "fails where an example ends the process as if all were well" do
    expect(run(files: { "leaves" => "it('leaves') { exit }\nit('is wrong') { raise 'no' }" }).first).to be(false)
    expect(run(files: { "flees" => "it('flees') { exit! 0 }\nit('is wrong') { raise 'no' }" }).first).to be(false)
    late = "it('is late') { #{LATE} }\nit('leaves') { exit 1 }\nit('is wrong') { raise 'no' }"
    expect(run(files: { "late" => late }).first).to be(false)
  end

  it "fails where something fails outside of examples" do
    expect(run(files: { "outside" => "after(:context) { raise 'no' }\nit('is') { }" }).first).to be(false)
    expect(run(files: { "syntax" => "it('is' {" }).first).to be(false)
    once = "after(:context) { #{LATE} }\nit('is') { }\nit('is, too') { }"
    expect(run(files: { "once" => once }).first).to be(false)
  end

  it "repeats nothing that ran alone" do
    passed, text = run(files: { "measures" => "it('is late', alone: true) { #{LATE} }" })
    expect([passed, text.lines.last]).to eq([false, "1 examples, 1 failures, 0 pending\n"])
    expect(text).not_to match(/again/i)
  end

  it "repeats nothing if too many fail for chance" do
    many = "#{FIRST}\n11.times { |number| it(number.to_s) { raise 'not over after 9 s' if first } }"
    passed, text = run(files: { "many" => many })
    expect([passed, text.lines.last]).to eq([false, "11 examples, 11 failures, 0 pending\n"])
    expect(text).not_to match(/again/i)
  end

  it "selects by tags as the first run did" do
    body = "it('is late') { #{LATE} }\nit('takes long', long: true) { raise 'long' }"
    expect(run(["--tag", "~long"], files: { "tags" => body }).last.lines.last)
      .to eq("1 examples, 0 failures, 0 pending, 1 failed once and passed when run again\n")
  end
end
