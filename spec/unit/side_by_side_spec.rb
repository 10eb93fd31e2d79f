# frozen_string_literal: true

require "fileutils"
require "stringio"
require "tmpdir"
require_relative "../spec_helper"
require_relative "../../rakelib/spec/side_by_side"

# `rake spec` runs once more, by itself, what failed beside others. What always fails must fail nevertheless.
RSpec.describe SideBySide do
  around do |example|
    Dir.mktmpdir do |folder|
      @folder = folder
      example.run
    end
  end

  # The beginning of an example's body: true only in the first process that comes here.
  FIRST = 'first = begin; File.open(__FILE__ + ".ran", "wx").close; true; rescue Errno::EEXIST; false; end'

  # Runs spec files of these bodies; gives whether all have passed, and what was printed.
  def run(arguments = [], files:, **options)
    paths = files.map do |name, body|
      File.join(@folder, "#{name}_spec.rb").tap do |path|
        File.write(path, "RSpec.configure { |c| c.define_derived_metadata { |m| m[:beside] = !m[:alone] } }\n" \
                         "RSpec.describe('#{name}') do\n#{body}\nend\n")
      end
    end
    output = StringIO.new
    passed = described_class.new(arguments, files: paths, task: "logs", logs: @folder, output: output, **options).run
    [passed, output.string]
  end

  it "passes, and repeats nothing, where nothing fails" do
    passed, text = run(files: { "good" => "it('is') { }", "skipped" => "it('waits') { skip 'no cat' }" })
    expect([passed, text.lines.last]).to eq([true, "2 examples, 0 failures, 1 pending\n"])
    expect(text).to include("Left out:\n  1 x no cat\n")
    expect(text).not_to match(/again/i)
  end

  it "passes where an example failed once, and names it with what it said" do
    chance = "it('is good') { }\nit('is late') { #{FIRST}; expect(first ? 'late' : 'in time').to eq('in time') }"
    passed, text = run(files: { "good" => "it('is') { }", "chance" => chance })
    expect([passed, text.lines.last])
      .to eq([true, "3 examples, 0 failures, 0 pending, 1 failed once beside others and passed when run again\n"])
    listed = text[/^Failed once beside others, passed when run again by themselves:\n.*?\n\n/m]
    expect(listed).to match(/chance_spec\.rb:4 # chance is late\n +expected: "in time"\n +got: "late"/)
    expect(text).not_to match(/^Failed:/)
  end

  it "fails where an example fails again, beside one that failed by chance" do
    passed, text = run(files: { "chance" => "it('is late') { #{FIRST}; raise 'late' if first }",
                                "wrong" => "it('is good') { }\nit('is wrong') { raise 'wrong' }" })
    expect(passed).to be(false)
    expect(text).to match(/^Failed:\n  rspec \S+wrong_spec\.rb:4 # wrong is wrong\n\n/)
    expect(text.lines.last)
      .to eq("3 examples, 1 failures, 0 pending, 1 failed once beside others and passed when run again\n")
  end

  it "fails where an example always fails after those before it, though not without them" do
    order = "it('spoils') { $spoilt = true }\nit('is spoilt') { raise 'no' if $spoilt }"
    passed, text = run(files: { "order" => order })
    expect([passed, text.lines.last]).to eq([false, "2 examples, 1 failures, 0 pending\n"])
  end

  it "fails where another example of the process fails when it runs again" do
    swapped = "#{FIRST}\nit('is good') { raise 'no' unless first }\nit('is late') { raise 'late' if first }"
    passed, text = run(files: { "swapped" => swapped })
    expect([passed, text.lines.last])
      .to eq([false, "2 examples, 1 failures, 0 pending, 1 failed once beside others and passed when run again\n"])
  end

  it "fails where what failed is not there, or skipped, when it should run again" do
    gone = "#{FIRST}\nit('is good') { }\nif first\n  it('goes') { raise 'no' }\nend"
    skipped = "it('is good') { }\nit('is skipped') { #{FIRST}; first ? raise('no') : skip('later') }"
    expect(run(files: { "gone" => gone }).first).to be(false)
    expect(run(files: { "skipped" => skipped }).first).to be(false)
  end

  it "repeats all files of a process that was killed" do
    killed = "it('is good') { }\nit('dies') { #{FIRST}; Process.kill(:KILL, $$) if first }"
    passed, text = run(files: { "beside" => "it('is') { }", "killed" => killed })
    expect(passed).to be(true)
    expect(text).to match(/\d s +3 ok +again: beside, killed\n/)
    expect(text).to match(/^Failed once .*:\n  rspec \S+ \S+killed_spec\.rb # did not run to its end/)
    expect(text.lines.last).to end_with(", 1 failed once beside others and passed when run again\n")
  end

  it "fails where a process is killed again, by itself or for it takes too long" do
    killed = "it('dies') { Process.kill(:KILL, $$) }"
    expect(run(files: { "killed" => killed })).to match([false, /did not run to its end/])
    passed, text = run(files: { "stuck" => "it('sleeps') { sleep }" }, most_seconds: 1)
    expect(passed).to be(false)
    expect(text).to match(/^Failed:\n  rspec \S+stuck_spec\.rb # did not run to its end/)
  end

  it "fails where an example ends the process as if all were well" do
    expect(run(files: { "leaves" => "it('leaves') { exit }\nit('is wrong') { raise 'no' }" }).first).to be(false)
    expect(run(files: { "flees" => "it('flees') { exit! 0 }\nit('is wrong') { raise 'no' }" }).first).to be(false)
    late = "it('is late') { #{FIRST}; raise 'late' if first }\nit('leaves') { exit 1 }\nit('is wrong') { raise 'no' }"
    expect(run(files: { "late" => late }).first).to be(false)
  end

  it "fails where something always fails outside of examples, and repeats the file if it did once" do
    expect(run(files: { "outside" => "after(:context) { raise 'no' }\nit('is') { }" }).first).to be(false)
    expect(run(files: { "syntax" => "it('is' {" }).first).to be(false)
    once = "after(:context) { #{FIRST}; raise 'no' if first }\nit('is') { }\nit('is, too') { }"
    passed, text = run(files: { "once" => once })
    expect(passed).to be(true)
    expect(text).to match(/\d s +2 ok +again: once\n/)
  end

  it "repeats nothing that ran alone" do
    passed, text = run(files: { "measures" => "it('is late', alone: true) { #{FIRST}; raise 'late' if first }" })
    expect([passed, text.lines.last]).to eq([false, "1 examples, 1 failures, 0 pending\n"])
    expect(text).not_to match(/again/i)
  end

  it "repeats nothing where so much fails that it is no chance" do
    many = "#{FIRST}\n11.times { |number| it(number.to_s) { raise 'no' if first } }"
    passed, text = run(files: { "many" => many })
    expect([passed, text.lines.last]).to eq([false, "11 examples, 11 failures, 0 pending\n"])
    expect(text).not_to match(/again/i)
  end

  it "selects by tags as the first run did" do
    body = "it('is late') { #{FIRST}; raise 'late' if first }\nit('takes long', long: true) { raise 'long' }"
    expect(run(["--tag", "~long"], files: { "tags" => body }).last.lines.last)
      .to eq("1 examples, 0 failures, 0 pending, 1 failed once beside others and passed when run again\n")
  end
end
