# frozen_string_literal: true

require "spec_helper"
require "tmpdir"

# Attacks on the gate: docs/design/waiting.md. Each part ends or is killed.
RSpec.describe "The gate under attack", :race, alone: true do
  LOST = -8 # MEMINTRO_FIGURES_LOST
  # Seconds. A wait for a thread that is gone never ends; on a busy machine any wait may take a while. So the bounds
  # here and below are ten times what a calm machine takes.
  AT_ONCE = 3.0

  def attack(*arguments, way:) = native(program("gate_attacks.cc"), *arguments, way: way)

  TruthDriver::WAYS.each do |way|
    it "is no place where a thread is cancelled, however long malloc takes, #{way}" do
      figures = attack("cancel_deferred", way: way)
      # Every thread has come to its end; what was written down while they slept in malloc is all there.
      expect(figures).to eq(whole: 16, all_seen: 1, marked: 0, recorded: 1, dropped: 0)
    end

    it "keeps no thread waiting where threads are cancelled asynchronously in malloc, #{way}" do
      figures = attack("cancel_asynchronous", way: way)
      # An interruption in the middle of a change makes the figures invalid, and the answer says so.
      usable = { marked: 0, started: 1, mode: 1, tracking: 5 }
      lost = { marked: LOST, started: LOST, mode: 0, tracking: 0 }
      expect(figures.slice(*usable.keys)).to eq(usable).or eq(lost)
      expect(figures[:cancelled]).to eq(128)
      expect(figures.values_at(:reading, :longest_fork)).to all(be < AT_ONCE)
    end

    ["dies", "lives"].each do |fate|
      it "says that figures are lost when a thread leaves malloc by longjmp while it records, and #{fate}, #{way}" do
        figures = attack("torn", fate, way: way)
        expect(figures).to include(marked: LOST, started: LOST, mode: 0, tracking: 0)
        expect(figures.values_at(:reading, :longest_fork)).to all(be < AT_ONCE)
      end
    end

    it "does not take a handler on a signal stack above the thread's own for a longjmp, #{way}" do
      figures = attack("on_signal_stack", way: way)
      expect(figures).to include(is_above: 1, marked: 0, recorded: 1)
      expect(figures[:handled]).to be > 20
      # A handler that comes while its own thread holds cells of the table waits for them in vain, and drops up to four
      # events. On a busy machine that was 0 to 4 in all, of 1,700 to 7,700 handlers.
      expect(figures[:dropped]).to be_between(0, 4 + (figures[:handled] / 100))
      expect(figures[:missed_frees]).to be_between(0, figures[:dropped])
    end

    it "leaves nothing of a fork that could not have its pause to the next, or to the child, #{way}" do
      figures = attack("lost_pause", way: way)
      expect(figures).to include(child: 7, started: LOST, marked: LOST, grandchild: 9)
      expect(figures[:child_ms]).to be < 5_000
      expect(figures[:forked]).to be_between(0.05, 20.0)
      # 200 threads freed one block each and made 20; not one is missing. And 20 later forks track.
      expect(figures).to include(seen: be_between(4_000, 4_010), tracking: 20, recorded: 1, dropped: 0)
      expect(figures[:longest_fork]).to be < 4
    end

    it "leaves nothing of another thread's fork to those who are born in the child, #{way}" do
      expect(attack("both_fork", way: way)).to include(met: be >= 8, children: 20, grandchildren: 60, recorded: 1)
    end

    it "counts what operator new allocates in a dying thread once, #{way}" do
      figures = attack("dying", way: way)
      expect(figures).to include(blocks_of_5555: 5 * figures[:calls], missed_frees: 0, dropped: 0)
      expect(figures[:calls]).to be >= 200
    end

    it "is opened again by a thread that writes a raw dump with a cancellation pending, #{way}" do
      Dir.mktmpdir do |folder|
        figures = attack("cancelled_dump", File.join(folder, "dump"), way: way)
        expect(figures).to include(dumped: 0, marked: 0, recorded: 1, reading: be < AT_ONCE)
        expect(Dir.children(folder)).to eq(["dump"])
      end
    end

    it "lets forks through between readers that never rest, #{way}" do
      figures = attack("restless", 10_000, way: way)
      # A fork waits for a fraction of a second. On a busy machine, a few of 100 children do not get their pause.
      expect(figures[:tracking]).to be >= 95
      expect(figures[:readings]).to be > 100
      expect(figures[:longest_fork]).to be < 8
    end
  end

  # Offsets of 8 KiB in all, so that the stack ends at each of our instructions that use it.
  { "malloc" => 512, "new" => 512, "first" => 256, "figures" => 128, "start" => 48 }.each do |what, rounds|
    %w[off sampled full].each do |mode|
      it "is left usable by stack overflows in #{what} that a handler leaves by longjmp, #{mode}" do
        TruthDriver::WAYS.each do |way|
          pauses = what == "malloc" ? ["pauses"] : []
          figures = native(program("overflow.cc"), what, mode, rounds, *pauses, way: way)
          expect(figures).to include(overflows: rounds, unrecorded: 0, unseen_by_others: 0, refused: 0, dropped: 0)
          expect(figures).to include(seen_in_the_end: 1, stopped: 0) unless mode == "off"
        end
      end
    end
  end
end
