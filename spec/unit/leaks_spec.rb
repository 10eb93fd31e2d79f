# frozen_string_literal: true

require_relative "../spec_helper"
require "memintro/malloc/leaks"
require "memintro/malloc/leaks/owner"
require "memintro/malloc/leaks/reading"
require "memintro/report/leaks_report"
require "stringio"

RSpec.describe Memintro::Leaks do
  def group(**figures) = described_class::Group.new(verdict: :leaked, count: 1, bytes: 1, **figures)

  def leaks(groups, **figures)
    sums = %i[leaked_blocks leaked_bytes indirectly_leaked_blocks indirectly_leaked_bytes undecided_blocks
              undecided_bytes free_bytes].to_h { |name| [name, 0] }
    described_class.new(**sums, scanned_blocks: 28_363, scanned_bytes: 4_980_599, allocator: :glibc, basis: :chunks,
                                mode: :full, copies: 2, searched_bytes: 5_000_000, search_ms: 12.5, pause_ms: 3.25,
                                notes: [], groups: groups, **figures)
  end

  let(:found) do
    rows = [group(site: "app.rb:12", size: 1024, count: 50_000, bytes: 51_200_000, youngest: 0, oldest: 3),
            group(size: 40, count: 2, bytes: 80, first_words: ["zero", "a number"], example: "0x5500"),
            group(verdict: :indirectly_leaked, size: 24, count: 1, bytes: 24, held_by: "a leaked block of 40 bytes"),
            group(verdict: :anchored, site: "<b>:1", count: 9, bytes: 900, held_by: "a static, libx.so(cache)"),
            group(verdict: :free_but_kept, count: 3, bytes: 4096)]
    leaks(rows, leaked_blocks: 50_002, leaked_bytes: 51_200_080, indirectly_leaked_blocks: 1,
                indirectly_leaked_bytes: 24)
  end

  it "begins with what leaks most, and says what to do" do
    expect(found.verdict).to eq(
      ["50,000 blocks of 1,024 bytes (48.8 MiB) that nothing points to, from app.rb:12.",
       "2 further blocks (80 B) have nothing that points to them.", "Only leaked blocks point to 1 more block (24 B).",
       "Look at that line: what it allocates must be freed by the same library, or be kept where it can be. Work on " \
       "and ask again, to see whether it grows."]
    )
    expect(found.summary.lines(chomp: true)).to eq(
      ["leaked: 50,000 blocks of 1,024 bytes (48.8 MiB) from app.rb:12 aged 0 to 3 GCs",
       "leaked: 2 blocks of 40 bytes (80 B); that at 0x5500 begins with zero, a number",
       "indirectly leaked: 1 block of 24 bytes (24 B); held by a leaked block of 40 bytes",
       "held: 9 blocks (900 B) from <b>:1; held by a static, libx.so(cache)", "free but kept: 4.0 KiB"]
    )
    expect(found.summary(top: 1).lines[1]).to eq("2 more blocks in 1 group, 80 B\n")
    expect(found.to_h[:groups].first).to include(site: "app.rb:12", size: 1024, count: 50_000, verdict: :leaked)
    expect(found).to be_any
  end

  it "says that nothing leaks, that a line is not known, and that little is little" do
    expect(leaks([]).verdict.first).to eq("No block that nothing points to, among 28,363 blocks (4.7 MiB).")
    lost = { leaked_blocks: 20, leaked_bytes: 80_000 }
    unknown = leaks([group(size: 4_000, count: 20, bytes: 80_000)], **lost, mode: :off)
    expect(unknown.verdict.first).to end_with("that nothing points to, from a line that is not known.")
    expect(unknown.verdict.last).to end_with("Memintro.start, work, and Memintro.leaks again.")
    asked = Memintro::Advice.naming_commands {
      leaks([group(size: 4_000, count: 20, bytes: 80_000)], **lost, mode: :off)
    }
    expect(asked.verdict.last).to end_with("to learn the lines: memintro leaks PID --track 60.")
    tracked = leaks([group(size: 4_000, count: 20, bytes: 80_000)], **lost)
    expect(tracked.verdict.last).to start_with("They were allocated before tracking began.")
    little = leaks([group(site: "a.rb:1", size: 40, count: 1, bytes: 40)], leaked_blocks: 1, leaked_bytes: 40)
    expect(little.verdict.first).to start_with("Little is leaked: 1 block (40 B) that nothing points to")
  end

  it "says what weighs most and came before tracking, where nothing came since and little is leaked" do
    counts = { objects: 241, silent_objects: 241, blocks: 3_000_000, bytes: 140 << 20, tracked_objects: 0,
               tracked_bytes: 0, garbage_objects: 0, garbage_bytes: 0, silent_garbage_objects: 0 }
    before = described_class::Owner.new(class_name: "X509::Store", library: nil, sites: [], garbage_sites: [], **counts)
    little = leaks([group(size: 40, count: 1, bytes: 40)], leaked_blocks: 1, leaked_bytes: 40, owners: [before])
    first, second, third = little.verdict
    expect(first).to eq("140.0 MiB are owned by 241 objects of class X509::Store, and their extension does not tell " \
                        "Ruby their size; less than 1.0 MiB of it came while it tracked.")
    expect(second).to end_with(': Memintro.holders("X509::Store").')
    asked = Memintro::Advice.naming_commands { leaks([], leaked_blocks: 1, leaked_bytes: 40, owners: [before]).verdict }
    expect(asked[1]).to end_with(": memintro holders #{Process.pid} --class X509::Store.")
    expect([third, little.verdict.size]).to match([/\ALittle is leaked: 1 block/, 3])
    much = leaks([group(site: "a.rb:1", count: 9, bytes: 9 << 20)], leaked_blocks: 9, leaked_bytes: 9 << 20,
                                                                    owners: [before])
    expect(much.verdict.join).not_to include("X509::Store")
  end

  it "says what may be lost as well, where the allocator does not tell free memory from memory in use" do
    held = "memory of malloc that is not tracked (1.4 MiB of it)"
    rows = [group(site: "a.rb:1", size: 6_000, count: 819, bytes: 4_914_000),
            group(verdict: :anchored, site: "a.rb:1", count: 1_081, bytes: 6_486_000, held_by: held)]
    figures = { leaked_blocks: 819, leaked_bytes: 4_914_000 }
    expect(leaks(rows, **figures, allocator: :jemalloc).verdict[1])
      .to start_with("Up to 1,081 more blocks (6.2 MiB) may be lost as well")
    expect(leaks(rows, **figures).verdict.join).not_to include("may be lost")
  end

  it "names no next command for a core file" do
    of = lambda do |site, bytes|
      rows = [group(site: site, size: 40, count: 2, bytes: bytes)]
      leaks(rows, leaked_blocks: 2, leaked_bytes: bytes, copies: 0).verdict.last
    end
    expect(of[nil, 80]).to start_with("This core file does not say that line.")
    expect(of["a.rb:1", 80]).to end_with("as most programs lose at their start.")
    expect(of["a.rb:1", 1 << 20]).to end_with("must be freed by the same library, or be kept where it can be.")
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
      native = double(allocator_figures: [:jemalloc, []], mode: :full, site_names: [], rubys_sites: [],
                      untracked_enter: nil, untracked_leave: nil)
      allow(native).to receive(:leaks) { looks.fetch([(@asked += 1), looks.size].min - 1) }
      stub_const("Memintro::Native", native)
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

  it "writes an address without an Integer of it" do
    reading = Memintro::LeakReading.allocate
    [0, 1, 4096, (1 << 32) - 1, 1 << 32, 140_459_014_672_128, (1 << 64) - 1].each do |address|
      expect(reading.send(:hexadecimal, address.to_s).to_i(16)).to eq(address)
    end
  end
end
