# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/one_ruby"
require "tmpdir"

# Who holds a block: the object that has it as its own, however many other words point to it.
RSpec.describe "who holds what Memintro.leaks calls held" do
  SCRIPT = File.join(Subprocess::SCRIPTS, "leaks_holders.rb")
  LINE = "#{SCRIPT}:#{File.readlines(SCRIPT).index { |line| line.include?('Kept.new') } + 1}".freeze
  OWNED = { site: LINE, held_by: "40 Ruby objects of class Kept", owner: "Kept", owners: 40 }.freeze

  # The text about the blocks of that line; the objects own 40 of them.
  def expect_owned(groups)
    found = groups.find { |group| group[:site] == LINE }
    expect(found).to include(OWNED)
    expect(found[:held_bytes]).to be_between(40 * 9_000, 40 * 16_400)
  end

  it "is the object, in each of ten processes" do
    program = "Memintro.start; load #{SCRIPT.dump}; puts JSON.generate(Memintro.leaks.groups.map(&:to_h))"
    ruby = OneRuby.new(requires: %w[json fiddle memintro])
    10.times { expect_owned(JSON.parse(ruby.run(program).must_succeed.stdout, symbolize_names: true)) }
  ensure
    ruby&.close
  end

  it "is an array that keeps addresses as Integers in Ruby's short-lived memory" do
    found = run_ruby(code: <<~RUBY, requires: %w[json fiddle memintro]).must_succeed.json
      Memintro.start
      KEPT = Array.new(100) { Array.new(40) { Fiddle.malloc(5_100) } }
      found = Memintro.leaks(gc: false).groups
      lost = found.select { |group| group.size == 5_100 }.sum(&:count)
      puts JSON.generate(lost: lost, held: found.find { |group| group.site&.end_with?("-e:2") }.to_h)
    RUBY
    expect(found[:lost]).to eq(0)
    expect(found[:held]).to include(owner: "Array", held_bytes: be_between(3_900 * 5_100, 4_000 * 5_200))
  end

  it "is the object, also in a core file" do
    Dir.mktmpdir("memintro-core") do |folder|
      program = "Memintro.start; load #{SCRIPT.dump}; Process.kill(:ABRT, Process.pid); sleep"
      run_command("sh", "-c", 'ulimit -c unlimited && exec "$@"', "sh", RbConfig.ruby, "-I", Subprocess::LIB,
                  "-rmemintro", "-e", program, chdir: folder)
      core = Dir[File.join(folder, "core*")].first or skip "this machine writes core files elsewhere"
      answer = run_memintro("leaks", "--core", core, "--json").must_succeed.stdout
      expect_owned(JSON.parse(answer, symbolize_names: true)[:groups])
    end
  end
end
