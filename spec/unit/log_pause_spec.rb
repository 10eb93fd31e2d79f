# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../../lib/memintro/logging/log_pause"

RSpec.describe "Memintro::LogPause" do
  let(:clock) { [0.0] }
  let(:pause) { Memintro::LogPause.new(-> { clock[0] }) }

  # The outcome of a line: :lost, or its number.
  def line(works: true)
    carried = pause.turn or return :lost
    pause.settle(carried, works ? :written : :stuck)
    works ? carried : :lost
  end

  it "says in the first line that can be written how many could not" do
    expect([line, line(works: false), line, line, line]).to eq([0, :lost, :lost, :lost, :lost])
    clock[0] += 4.9
    expect(line).to eq(:lost)
    clock[0] += 0.2
    expect([line, line, line]).to eq([5, 0, 0])
  end

  it "tries at once after a line that was lost for itself alone" do
    pause.settle(pause.turn, :lost)
    expect([line, line]).to eq([1, 0])
  end

  it "tries once in five seconds, and keeps the count of further failures" do
    tried = 0
    100.times do
      carried = pause.turn
      if carried
        tried += 1
        pause.settle(carried, :stuck)
      end
      clock[0] += 0.25
    end
    expect(tried).to eq(5)
    clock[0] += 5
    expect(line).to eq(100)
  end

  it "lets one thread try while the others wait, and loses no count between them" do
    line(works: false)
    clock[0] += 5
    carried = pause.turn
    expect([carried, line, line]).to eq([1, :lost, :lost])
    pause.settle(carried, :stuck)
    clock[0] += 5
    expect([line, line]).to eq([4, 0])
    said = Queue.new
    threads = Array.new(8) do |i|
      Thread.new do
        500.times do |j|
          said << line(works: (i + j) % 7 != 0)
          clock[0] += 1
        end
      end
    end
    threads.each(&:join)
    clock[0] += 10
    all = Array.new(said.size) { said.pop } + [line, line]
    expect(all.grep(Integer).sum).to eq(all.count(:lost))
  end

  it "does not tell in a forked child what its parent lost" do
    3.times { line(works: false) }
    clock[0] += 5
    reader, writer = IO.pipe
    Process.wait(fork { writer.write(line) and exit!(0) })
    writer.close
    expect([reader.read, line]).to eq(["0", 3])
  end

  it "marks lines of each form where their reader finds it" do
    mark = ->(line) { Memintro::LogPause.mark(line, 12) }
    expect(mark["MEMORY method=GET path=/x"]).to eq("MEMORY method=GET path=/x dropped_lines=12")
    expect(mark["MEMORY limit=rss\nRSS grew"]).to eq("MEMORY limit=rss dropped_lines=12\nRSS grew")
    expect(mark["MEMORY[7]: time: 2026-01-01 12:00:00 +0000 rss: 1.0 MB"])
      .to eq("MEMORY[7]: time: 2026-01-01 12:00:00 +0000 rss: 1.0 MB, dropped_lines: 12")
    expect(mark['{"event":"MEMORY","path":"/x"}']).to eq('{"event":"MEMORY","path":"/x","dropped_lines":12}')
    expect(Memintro::LogPause.mark("MEMORY path=/x", 0)).to eq("MEMORY path=/x")
  end
end
