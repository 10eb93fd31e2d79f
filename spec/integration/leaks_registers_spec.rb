# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/native_programs"

# Threads that hold the only address of a block in a register while Memintro.leaks searches: nothing in memory points to
# such a block.
RSpec.describe "Memintro.leaks beside registers of other threads", :native_programs do
  HOLDING = Subprocess.read_program("leaks_registers/holding.rb")

  before { skip "the fixture names registers of x86-64" unless RbConfig::CONFIG["host_cpu"] == "x86_64" }

  %w[tracked untracked].each do |way|
    it "calls no block leaked that only a register holds, whether its thread runs or waits (#{way})" do
      library = NativePrograms.shared_module("register_holder.c", flags: %w[-O1 -pthread])
      found = run_ruby(nil, library, way, code: HOLDING, requires: %w[json fiddle memintro]).must_succeed.json
      before, after = found[:rows]
      # An old copy of an address may hold one or the other.
      [[5_000, 4], [5_096, 6]].each do |size, most|
        rows = before.select { |row| row.first == size }
        expect(rows.map { |_, verdict, _| verdict }).to eq(["undecided"])
        expect(rows.first.last).to be_between(most / 2, most)
      end
      # More blocks than registers: these leaked.
      expect(before.find { |size, verdict, _| size == 6_008 && verdict == "leaked" }.last).to be_between(450, 500)
      expect(before.select { |_, verdict, _| verdict == "leaked" }.map(&:first)).to eq([6_008])
      expect(found[:notes].first.join).to match(/10 threads ran, or waited .* more of them than such registers \(352\)/)
      # Without those threads, few blocks are leaked as well.
      few = after.find { |size, verdict, _| size == 7_000 && verdict == "leaked" }
      expect(few.last).to be_between(10, 20)
      expect(found[:notes].last.join).not_to include("registers")
    end
  end

  it "names the thread on whose stack a block is" do
    library = NativePrograms.shared_module("register_holder.c", flags: %w[-O1 -pthread])
    found = run_ruby(nil, library, code: <<~'RUBY', requires: %w[json fiddle memintro]).must_succeed.json
      library = Fiddle.dlopen(ARGV.fetch(0))
      keep = Fiddle::Function.new(library["register_holder_on_stack"], [Fiddle::TYPE_SIZE_T], Fiddle::TYPE_VOID)
      ready = Fiddle::Function.new(library["register_holder_ready"], [], Fiddle::TYPE_INT)
      Memintro.start
      keep.call(50_000_000)
      sleep 0.01 until ready.call == 1
      row = Memintro.leaks.groups.select { |group| group.verdict == :anchored }.max_by(&:bytes)
      threads = Dir.children("/proc/self/task").to_h { |task| [File.read("/proc/self/task/#{task}/comm").chomp, task] }
      puts JSON.generate(held_by: row.held_by, thread: threads.fetch("keeper"))
    RUBY
    expect(found[:held_by]).to start_with("the stack of thread #{found[:thread]} (keeper)")
  end

  it "names the stack of a fiber" do
    code = <<~RUBY
      Memintro.start
      FIBERS = Array.new(5) { Fiber.new { Fiddle.malloc(30_000).then { |block| Fiber.yield && block } } }.each(&:resume)
      thread = Thread.new { Fiber.new { Fiddle.malloc(30_000).then { |block| Fiber.yield && block } }.resume && sleep }
      sleep 0.01 until thread.stop?
      puts Memintro.leaks
    RUBY
    text = run_ruby(code: code, requires: %w[fiddle memintro]).must_succeed.stdout
    expect(text).to match(/^held: .* from .*:2; held by the stack of a fiber/)
    expect(text).not_to include("blocks of 30,000 bytes")
  end

  it "knows that threads that wait inside Ruby hold nothing in registers" do
    result = run_ruby(code: <<~RUBY, requires: %w[json fiddle memintro]).must_succeed.json
      Memintro.start
      def leak = 20.times { Fiddle.malloc(7_000) }
      read, write = IO.pipe
      queue, mutex = Queue.new, Mutex.new.tap(&:lock)
      waits = [-> { sleep }, -> { queue.pop }, -> { mutex.lock }, -> { read.read },
               -> { IO.select([read]) }, -> { IO.popen(["sleep", "20"], &:read) }, -> { sleep 100 }]
      threads = waits.map { |wait| Thread.new { wait.call } }
      sleep 0.1 until threads.all?(&:stop?)
      leak
      found = Memintro.leaks
      groups = found.groups.select { |one| one.size == 7_000 }.map { |group| [group.verdict, group.count] }
      puts JSON.generate(groups: groups, notes: found.notes, threads: threads.count(&:alive?), closed: write.closed?)
    RUBY
    expect(result[:threads]).to eq(7)
    # An old word on a stack may look as if one of them waited elsewhere.
    expect(result[:notes].join).not_to match(/[2-9] threads/)
    expect(result[:groups].map(&:first)).to eq(["leaked"])
    # Old words on the stack may hold a few.
    expect(result[:groups].first.last).to be_between(10, 20)
  end
end
