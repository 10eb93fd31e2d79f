# frozen_string_literal: true

require_relative "../spec_helper"
require "memintro"
require "memintro/malloc/leaks"
require "memintro/malloc/leaks/reading"
require "memintro/report/leaks_report"
require "stringio"

RSpec.describe Memintro::Leaks do
  let(:found) do
    lost = { verdict: :leaked, site: "app.rb:12", size: 1024, count: 50_000, bytes: 51_200_000, youngest: 0, oldest: 3 }
    held = { verdict: :anchored, site: "<b>:1", count: 9, bytes: 900, held_by: "a static, libx.so(cache)" }
    figures = { leaked_blocks: 50_000, leaked_bytes: 51_200_000, indirectly_leaked_blocks: 0,
                indirectly_leaked_bytes: 0, undecided_blocks: 0, undecided_bytes: 0, scanned_blocks: 28_363,
                scanned_bytes: 4_980_599, free_bytes: 0, allocator: :glibc, basis: :chunks, mode: :full, copies: 2,
                searched_bytes: 5_000_000, search_ms: 12.5, pause_ms: 3.25, garbage_collected: true }
    judged = Memintro::Native.leaks_judged({ **figures, notes: [], owners: [], groups: [lost, held] }, [], false)
    described_class.of_hash(judged)
  end

  it "has what the extension tells" do
    expect(found.verdict.first)
      .to eq("50,000 blocks of 1,024 bytes (48.8 MiB) that nothing points to, from app.rb:12.")
    expect(found.groups.map(&:to_s))
      .to eq(["leaked: 50,000 blocks of 1,024 bytes (48.8 MiB) from app.rb:12 aged 0 to 3 GCs",
              "held: 9 blocks (900 B) from <b>:1; held by a static, libx.so(cache)"])
    expect(found.summary.lines(chomp: true)).to eq(found.groups.map(&:to_s))
    expect(found.to_h[:groups].first).to include(site: "app.rb:12", size: 1024, count: 50_000, verdict: :leaked)
    expect([found.any?, found.little?, found.by_weight.first, found.weighty_owners]).to eq([true, false, :leaked, []])
    expect([found.groups[0].blocks, found.groups[1].holders])
      .to eq(["50,000 blocks of 1,024 bytes (48.8 MiB)", "a static, libx.so(cache)"])
  end

  it "is the same after a way through JSON, and refuses what is none" do
    again = described_class.of_hash(Memintro::JsonText.parse(found.to_json))
    expect([again, again.to_s]).to eq([found, found.to_s])
    expect { described_class.of_hash("groups" => [{ "verdict" => "odd" }]) }
      .to raise_error(Memintro::LeaksError, "this is no answer of memintro about leaks")
  end

  it "is a page that loads nothing, with names escaped" do
    page = StringIO.new
    Memintro::LeaksReport.new(found, name: "web <1>").write(page, format: :html)
    expect(page.string).to include("Leaks of web &lt;1&gt;", "Leaked: nothing points to them", "&lt;b&gt;:1; held by")
    expect(page.string).not_to match(/<script|<b>/)
  end

  describe "when a look leaves something undecided" do
    # One look: how many threads ran, blocks that were held in another copy, and the verdicts of its groups.
    def look(ran, doubted, groups)
      rows = groups.map { |verdict, site| "group #{verdict} #{site} 64 5 320 0 0 4294967295 0" }
      sums = groups.map { |verdict, _| "verdict #{verdict} 1 5 320" }
      text = ["registers #{ran} #{79 * ran} #{ran}", "doubted #{doubted}", "scanned 9 900", "stage 1", *rows, *sums]
      ["#{text.join("\n")}\n", true, 2.0, 1, nil, nil]
    end

    def search(*looks, confirm: true, &matters)
      @asked = 0
      allow(Memintro::Native).to receive_messages(allocator_figures: [:jemalloc, []], mode: :full)
      allow(Memintro::Native).to receive(:leaks) { looks.fetch([(@asked += 1), looks.size].min - 1) }
      Memintro::LeakReading.take(first_words: false, confirm: confirm, seconds: 60, &matters)
    end

    it "looks again until it is decided, and adds up what that costs" do
      found = search(look(1, 0, [[2, 7]]), look(0, 3, [[2, 7]]), look(0, 0, [[0, 7]]))
      expect([@asked, found.leaked_blocks, found.undecided_blocks]).to eq([3, 5, 0])
      expect([found.copies, found.pause_ms]).to eq([3, 6.0])
    end

    it "ends after a while, and says how much is undecided" do
      begun = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      found = search(look(1, 0, [[2, 7]]))
      expect(Process.clock_gettime(Process::CLOCK_MONOTONIC) - begun).to be < 3
      expect(@asked).to be_between(3, 6)
      expect(found.verdict).to include("Whether 5 blocks (320 B) are lost is undecided: something pointed to them in " \
                                       "another copy, or registers of other threads may.")
    end

    it "does not look again for blocks that were not asked about, nor where another look would say the same" do
      search(look(1, 0, [[2, 7]])) { |site| site == 8 }
      expect(@asked).to eq(1)
      search(look(1, 0, [[0, 7]]))
      expect(@asked).to eq(1)
      # A thread that waits in a library keeps its registers.
      search(look(0, 0, [[2, 7]]))
      expect(@asked).to eq(1)
    end
  end
end
