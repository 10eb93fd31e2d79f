# frozen_string_literal: true

require_relative "../../spec_helper"
require_relative "../../support/doubts"
require_relative "../../support/saved_report"

RSpec.describe "The text of a report" do
  let(:process) { SavedReport::PROCESS.dup }
  let(:rows) { FakeNative::ROWS }
  let(:figures) { FakeNative::TOTALS }
  let(:terminal) { StringIO.new.tap { |io| io.define_singleton_method(:tty?) { true } } }

  def text(io = StringIO.new, **options)
    report = SavedReport.read(rows: rows, totals: figures.first(7), process: process)
    SavedReport.written(report, io, app_root: "/app", **options)
  end

  it "says whose figures they are, the totals, and lines up the sites" do
    expect(text(top: 3)).to eq(<<~REPORT)
      memintro 0.1.0: pid 42, ruby 3.1.2, full mode, preloaded, 2024-05-06T07:08:09Z
      leak.rb
      live 48.8 MiB in 50,008 blocks, allocated 97.7 MiB in 100,017 calls, freed 48.8 MiB in 50,009
      tracking itself uses 1.2 MiB

      3 of 4 call sites, by live_bytes:

          live   share  blocks   allocs   frees     growth  call site
      48.8 MiB  100.0%  50,000  100,000  50,000  +47.7 MiB  leak.rb:12
       3.9 KiB    0.0%       8       10       2     -500 B  libz.so.1(deflateInit2_+0x9c)
           0 B    0.0%       0        4       4        0 B  (gc)

      1 more call site, live 0 B
    REPORT
  end

  it "has the RSS beside what is live, where the process says it" do
    process[:rss_bytes] = 70 * 2**20
    expect(text(top: 0)).to include(" freed 48.8 MiB in 50,009\nRSS 70.0 MiB; tracking itself uses 1.2 MiB\n")
  end

  it "says how many sites there are where none is asked for" do
    expect(text(top: 0)).to include("tracking itself uses 1.2 MiB\n\n4 call sites, live 48.8 MiB\n")
    expect(text(top: 0)).not_to include("No call site")
  end

  it "marks what a sample says, also of the sites that it leaves out" do
    sampled = rows.map do |row|
      variances = [row[4], row[5], 100.0 * row[4], 100.0 * row[5]]
      [*row, Doubts.of_row(variances, growth: 9.0, ages: 4.0, covariance: 2.0)]
    end
    process.merge!(mode: :sampled, sample_bytes: 1_000)
    totals = [*figures.first(7), Doubts.of_totals([1e12, 5e11, 4e6, 1e6])]
    report = SavedReport.read(rows: sampled, totals: totals, process: process)
    text = SavedReport.written(report, app_root: "/app", top: 1)
    expect(text).to include("sampled mode (1000 B)", "live ~48.8 MiB ±690.5 KiB in ~50,008 ±1,733 blocks",
                            "~48.8 MiB ±2.2 KiB  ~100.0%  ~50,000 ±224")
    expect(text).to include("~+47.7 MiB ±3 B  leak.rb:12", "\n3 more call sites, live ~3.9 KiB ±29 B\n",
                            "note: Figures with ~ are estimated from a sample, one byte in 1,000.")
  end

  it "has a column for what it is sorted by" do
    expect(text(by: :total_bytes, top: 1)).to match(/  growth  allocated  call site\n.*  97.7 MiB  leak.rb:12\n/)
    expect(text(by: :mean_lifespan, top: 1)).to match(/  mean life  call site\n.*  2.0 GCs  \(gc\)\n/)
  end

  it "warns of missing figures" do
    figures = FakeNative::TOTALS.dup
    figures[4] = 3
    figures[6] = 1200
    allow(self).to receive(:figures).and_return(figures)
    process[:tracking] = false
    expect(text(top: 4)).to end_with(<<~NOTES)

      note: 1,200 allocations could not be followed: the budget (max_tracker_bytes), the memory or the 65,536 different sizes of 64 KiB and more that fit the table ran out. The figures are too low by these.
      note: 3 frees went past the hook and were noticed when the address came back.
      note: `Memintro.doctor` lists how frees can bypass the hook.
      note: Tracking is off: these are the figures of its last run.
    NOTES
  end

  context "with nothing tracked" do
    let(:rows) { [] }
    let(:figures) { [0] * 9 }

    it "says how to begin" do
      process[:tracking] = false
      expect(text).to include("not tracking").and include("Call Memintro.start in it")
        .and include("memintro run -- CMD")
    end

    it "says why nothing is seen, where it is known" do
      process[:problem] = "somebody else answers"
      expect(text).to end_with("\nmemintro sees no allocation in this process:\nsomebody else answers\n")
    end

    it "does not ask to start what has ended" do
      process.replace(pid: 42, memintro: "0.1.0", signal: 0, exit_status: nil)
      expect(text).to end_with("\nNothing has been allocated in this process.\n")
    end

    it "does not ask to start what is started" do
      expect(text).to include("No call site has allocated since tracking started.")
    end
  end

  it "tells how the process ended, where it could not report itself" do
    process.replace(pid: 42, memintro: "0.1.0", signal: 11, exit_status: nil)
    expect(text.lines.first).to eq("memintro 0.1.0: pid 42, killed by SIGSEGV\n")
    process.replace(pid: 42, memintro: "0.1.0", signal: 0, exit_status: 3)
    expect(text.lines.first).to eq("memintro 0.1.0: pid 42, left by exit!(3)\n")
    allow(self).to receive(:rows).and_return([FakeNative::ROWS[2]])
    expect(text.lines.first).to eq("memintro 0.1.0: pid 42, left by _exit(3)\n")
    process.replace(pid: 42, memintro: "0.1.0", signal: 0, exit_status: nil)
    expect(text.lines.first).to eq("memintro 0.1.0: pid 42\n")
  end

  describe "colour" do
    around do |example|
      former = ENV.to_h.slice("NO_COLOR", "TERM")
      ENV.update("NO_COLOR" => nil, "TERM" => "xterm")
      example.run
    ensure
      ENV.update({ "NO_COLOR" => nil, "TERM" => nil }.merge(former))
    end

    it "is there on a terminal only" do
      expect(text(terminal)).to start_with("\e[1mmemintro 0.1.0")
      expect(text).not_to include("\e")
    end

    it "is missing with any value of NO_COLOR, and on a dumb terminal" do
      ENV["NO_COLOR"] = "0"
      expect(text(terminal)).not_to include("\e")
      ENV.update("NO_COLOR" => "", "TERM" => "dumb")
      expect(text(terminal)).not_to include("\e")
    end
  end
end
