# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/listening"

# RSS grows by 12 kB and more for each account; ObjectSpace and malloc are flat, and there is one thread.
RSpec.describe "the story of enumerators that keep fibers", :listening do
  let(:story) { File.join(Subprocess::ROOT, "spec/fixtures/stories/enumerator_fibers.rb") }

  def output_of(program) = Array.new(4) { program.line.to_s.gsub(/RSS \d+ MB/, "RSS") }

  it "says that the stacks are of fibers, and that enumerators keep them" do
    input, theirs = IO.pipe
    plain, listens = [[[], ""], [["memintro"], "Memintro.listen; "]].map do |requires, first|
      start_program("#{first}load ARGV.shift", story, requires: requires, wait: false, in: input)
    end
    [plain, listens].each { |program| expect(program).to be_alive }
    without_rss = ->(lines) { lines.map { |line| line.sub(/\d+ mappings/, "mappings") } }
    expect(without_rss[output_of(listens)]).to eq(without_rss[output_of(plain)])

    account = memintro("account", listens.pid).must_succeed.stdout
    expect(account.lines.first).to match(/\A[4-9]\d\.\d% of \d+\.\d MiB is stacks of 1,50[0-2] fibers, not of threads/)
      .and include("runs an Enumerator whose `next` was called").and include("Use `first` or `lazy`, or drop it.")
      .and include("`memintro holders PID --class Enumerator` says what holds them.")
    expect(account).to match(/ thread_stacks \(\d threads? \d+\.\d KiB, [12],\d{3} fibers \d+\.\d MiB\)$/)
    rows = JSON.parse(memintro("account", listens.pid, "--json").must_succeed.stdout)["rows"]
    fibers = rows.find { |row| row["name"] == "thread_stacks" }["details"]["fibers"]
    expect(fibers).to include("live" => be_between(1500, 1502), "of_enumerators" => 1500)
    expect(fibers["bytes"]).to be_between(1500 * 8192, 60 << 20)

    chain = 'OpeningHours#@list ← Calendars#@of (Hash) ← CALENDARS'
    holders = %w[Fiber Enumerator].map { |name| memintro("holders", listens.pid, "--class", name).must_succeed.stdout }
    expect(holders[0].lines.first)
      .to match(/\A(1,500|1,499) of 1,50\d Fiber \(.*\): fiber of Enumerator ← #{Regexp.escape(chain)}/)
    expect(holders[1].lines.first).to match(/\A(1,500|1,499) of 1,50\d Enumerator \(.*\): #{Regexp.escape(chain)}/)
  ensure
    [input, theirs].each(&:close)
  end
end
