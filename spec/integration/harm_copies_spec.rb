# frozen_string_literal: true

require "socket"
require "tmpdir"
require_relative "../spec_helper"

# Copies of the process: they call neither the allocator nor the loader, and do no harm whatever becomes of them.
# Whoever waits for one can be interrupted.
RSpec.describe "copies of the process", :race do
  kinds = %w[account leaks holders dump]
  let(:guard) { shared_module("copy_guard.c") }

  it "call neither the allocator nor the loader", :vm, :vm_long do
    Dir.mktmpdir do |folder|
      result = run_ruby("copies_guarded.rb", guard, folder, env: { "LD_PRELOAD" => guard }).must_succeed.json
      expect(result.delete(:control)).to include("malloc", "dladdr")
      expect(result.size).to eq(18)
      expect(result.reject { |_, calls| calls.empty? }).to eq({})
    end
  end

  it "are searched beside threads that allocate all the time without Ruby's lock" do
    program = <<~'RUBY'
      library = Fiddle.dlopen(ARGV[0])
      Memintro.start
      Fiddle::Function.new(library["churn_begin"], [Fiddle::TYPE_LONG], Fiddle::TYPE_INT).call(3)
      ended = Array.new(2) do
        Memintro.leaks(gc: false, seconds: 20)
        "answered"
      rescue Memintro::LeaksError, Memintro::BusyError => error
        error.message
      end
      children = Dir.glob("/proc/self/task/*/children").sum { |path| File.read(path).split.size }
      puts JSON.generate(late: ended.grep(/before it had/), children: children)
      $stdout.flush
      exit!(0)
    RUBY
    result = run_command(RbConfig.ruby, "-I#{Subprocess::LIB}", *%w[-rjson -rfiddle -rmemintro], "-e", program,
                         shared_module("native_work.c"))
    expect(result.must_succeed.json).to eq(late: [], children: 0)
  end

  # Ruby interrupts a thread when a method returns, also the one that has made the copy.
  it "are known to their maker from the first moment on" do
    result = run_ruby(code: <<~'RUBY', requires: %w[json memintro]).must_succeed.json
      Memintro.holders(String)
      GC.disable
      thrown = Array.new(3) do
        Memintro::Native::HeapAsking.class_eval do
          prepend(Module.new { def begin(...) = super.then { Thread.current.raise("interrupted") } })
        end
        Memintro.holders(String)
      rescue RuntimeError => error
        error.message
      end
      left = -> { Dir.glob("/proc/self/task/*/children").sum { |path| File.read(path).split.size } }
      200.times { sleep(0.02) unless left.call.zero? }
      puts JSON.generate(thrown: thrown, left: left.call)
    RUBY
    expect(result).to eq(thrown: ["interrupted"] * 3, left: 0)
  end

  # Copies that stand still, of a program that has the guard.
  kinds.each do |kind|
    it "of #{kind} are waited for until the thread is interrupted, beside others" do
      ways = { "timeout" => "Timeout::Error", "kill" => nil, "signals" => "RuntimeError" }
      found = Dir.mktmpdir do |folder|
        run_ruby("copies_stopped.rb", guard, kind, folder, *ways.keys, env: { "LD_PRELOAD" => guard }).must_succeed.json
      end
      expect(found.size).to eq(3)
      found.each do |way, result|
        expect(result).to include(ended: ways.fetch(way.to_s), left: 0), "#{way}: #{result}"
        expect(result[:took]).to be < 10
        expect(result[:turns]).to be > 2
      end
    end

    it "of #{kind} end with the program, and free its port" do
      Dir.mktmpdir do |folder|
        program = [RbConfig.ruby, "-I#{Subprocess::LIB}", "-rmemintro",
                   File.join(Subprocess::SCRIPTS, "copies_stopped.rb"), guard, kind, folder, "wait"]
        IO.popen([bare_env.merge("LD_PRELOAD" => guard), *program]) do |output|
          told = JSON.parse(Timeout.timeout(60) { output.gets })
          Process.kill(:KILL, output.pid)
          100.times { sleep(0.02) unless told["copies"].all? { |pid| gone?(pid) } }
          expect(told["copies"].reject { |pid| gone?(pid) }).to eq([])
          expect(free_in_time?(told["port"])).to be(true)
        end
      end
    end
  end

  def free_in_time?(port)
    100.times do
      return TCPServer.new("127.0.0.1", port).close.nil?
    rescue Errno::EADDRINUSE
      sleep(0.02)
    end
    false
  end

  # Or waits to be noticed by whoever has got it.
  def gone?(pid)
    File.read("/proc/#{pid}/stat")[/\) (\S)/, 1] == "Z"
  rescue SystemCallError
    true
  end

  it "are said to have taken too long where they were stopped, not to have been killed from outside" do
    result = run_ruby(code: <<~'RUBY').must_succeed
      Memintro.start
      kept = Array.new(300_000) { |i| "x" * (i % 90 + 30) }
      Thread.new do
        loop do
          copies = Dir["/proc/self/task/*/children"].flat_map { |file| File.read(file).split.map(&:to_i) }
          copies.each { |pid| Process.kill(:STOP, pid) }
        rescue SystemCallError
          next # it has ended meanwhile
        end
      end
      begin
        Memintro.leaks(gc: false, seconds: 2)
      rescue Memintro::LeaksError => error
        puts error.message
      end
    RUBY
    expect(result.stdout).to include("was to find leaks took too long (SIGALRM)")
  end
end
