# frozen_string_literal: true

require "spec_helper"
require "tmpdir"

# Programs that make namespaces, as supervisors of containers do.
RSpec.describe "A process that makes its children in another PID namespace" do
  PROGRAM = <<~'RUBY'
    unshare = Fiddle::Function.new(Fiddle.dlopen(nil)["unshare"], [Fiddle::TYPE_INT], Fiddle::TYPE_INT)
    unshare.call(0x2000_0000).zero? or exit!(99)
    asks = { account: -> { Memintro.account }, leaks: -> { Memintro.leaks }, holders: -> { Memintro.holders(String) },
             dump: -> { Memintro.heap_dump(File.join(ARGV[0], "dump.ndjson")) } }
    ask = -> { asks.transform_values { |one| (one.call; "ok") rescue "#{$!.class}: #{$!.message}" } }
    before = ask.call
    # The first process of the namespace, and others.
    numbers = 3.times.map do
      reader, writer = IO.pipe
      pid = fork { writer.write(Process.pid); writer.close; sleep }
      writer.close
      [pid, reader.read.to_i]
    end
    during = ask.call
    numbers.reverse_each { |pid, _| Process.kill(:KILL, pid); Process.wait(pid) }
    puts JSON.generate(numbers: numbers.map(&:last), said: before.values + during.values)
  RUBY

  it "finds these children as without memintro, which refuses to make a copy there" do
    skip "only root can do that" unless Process.uid.zero?
    found = Dir.mktmpdir do |folder|
      result = run_ruby(nil, folder, code: PROGRAM, requires: %w[json fiddle memintro])
      skip "namespaces are refused here" if result.status.exitstatus == 99
      result.must_succeed.json
    end
    # From Ruby 3.3 on, each child takes a second number for its timer thread.
    expect(found[:numbers]).to eq([1, 2, 3]).or eq([1, 3, 5])
    expect(found[:said].size).to eq(8)
    expect(found[:said]).to all(match(/\AMemintro::\w+Error: .* another PID namespace \(unshare, setns\)/))
  end
end
