# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/listening"

# One-liners through rbtrace (Debian's ruby-rbtrace), which gives them 5 s and sends back one datagram.
RSpec.describe "through rbtrace", :listening do
  before do
    skip "no rbtrace here (apt-get install ruby-rbtrace)" unless system("which rbtrace", out: File::NULL)
    # A native library, which Debian builds for the release's own Ruby.
    skip "rbtrace is not for Ruby #{RUBY_VERSION}" unless run_ruby(code: "", requires: %w[rbtrace]).success?
  end

  # A process with more of everything than an answer can hold.
  let(:program) do
    start_program(<<~RUBY, requires: %w[rbtrace memintro])
      kept = Array.new(300_000) { |i| "object \#{i}" }
      classes = Array.new(2_000) { |i| Object.const_set("Class\#{i}WithALongNameThatFillsADatagramQuickly", Class.new).new }
      makers = Array.new(2_000) { |i| eval("-> { 'x' * 1_000 }", nil, "a/long/path/to/some/file/number/\#{i}.rb", i + 1) }
      Signal.trap("TERM") { exit }
      puts :ready
      loop { kept.replace(makers.map(&:call)) && sleep(0.05) }
    RUBY
  end

  def rbtrace(expression)
    result = answer = nil
    # Its 5 s may be over on a busy machine.
    3.times do
      result = run_command("rbtrace", "-p", program.pid.to_s, "-e", expression)
      answer = result.stdout[/^=> (.*?)\n*(?:^\*\*\* |\z)/m, 1] and break
    end
    expect(answer).not_to be_nil, "rbtrace got no answer to #{expression}\n#{result.stdout}\n#{result.stderr}"
    answer
  end

  it "starts, shows, snapshots and stops a process of 300,000 objects, 2,000 classes and 2,000 lines" do
    expect(rbtrace("Memintro.start")).to eq("true")
    top = eventually { rbtrace("Memintro.top").then { |text| text if text.include?("path/to/some/file") } }
    expect(top).to match(/\A#<Memintro::List 20 rows:\n  #<Memintro::CallSite .* live .* in \d+ blocks/)
    expect(rbtrace("Memintro.snapshot")).to match(/#<Memintro::Snapshot .* live slots, malloc live .* blocks/)
    expect(rbtrace("Memintro.iseqs")).to match(/\A#<Memintro::IseqTotals [\d,]+ iseqs, [\d.]+ MiB>$/)
    histogram = rbtrace("Memintro.histogram")
    expect(histogram).to match(/\A#<Memintro::List 2,\d+ rows:\n  #<Memintro::HistogramRow /)
    expect(histogram).to match(/^  #<Memintro::HistogramRow String: \d+,\d+, [\d.]+ MiB>$/)
    expect(histogram).to match(/^  and [\d,]+ more>/)
    expect([top, histogram].map(&:bytesize)).to all(be < 10_000)
    expect(rbtrace("Memintro.stop")).to match(/\A#<Memintro::Totals live .*allocated/)
  end

  # The commands of docs/without_listening.md and what it shows of each, on the program that it shows them on.
  describe "what docs/without_listening.md shows" do
    block = Documents.blocks("console").find { |found| found.code.start_with?("$ rbtrace ") }
    shown = block.commands.to_h { |command| [command.text, command.shown] }

    def worker
      shop = start_program("load ARGV.first", File.join(Subprocess::ROOT, "examples", "shop.rb"),
                           requires: %w[rbtrace memintro], chdir: Subprocess::ROOT, wait: false)
      children = "/proc/#{shop.pid}/task/#{shop.pid}/children"
      named = ->(pid) { File.read("/proc/#{pid}/cmdline").start_with?("shop: worker") }
      eventually { File.read(children).split.find(&named) }
    end

    # Without the line of rbtrace's own that it puts around every answer.
    def typed(command, pid)
      text = command.sub("PID", pid).sub("/tmp/report.txt", File.join(socket_folder, "report.txt"))
      run_command("sh", "-c", text).must_succeed.stdout.gsub(/^\*\*\* .*\n?/, "")
    end

    it "gives the expected result" do
      pid = worker
      start, top, report, stop = shown.keys
      expect(typed(start, pid)).to match(/\A>> Memintro\.start\n=> true\s*\z/)
      # Which lines are the greatest three differs from run to run.
      figures = /[\d.]+ [KMG]?i?B|\d+(?= (?:bl|al|fr))/
      form = lambda do |text|
        text.strip.gsub(/(?<=CallSite )\S+/, "SITE").gsub(figures, "N").gsub(/\b(block|allocation|free)s?\b/, '\1s')
      end
      given = eventually do
        typed(top, pid).then { |text| text if text.include?("shop.rb:12 ") && text.scan("CallSite").size == 3 }
      end
      expect(form[given]).to eq(form[shown[top]])
      expect(typed(report, pid)).to match(/^=> nil$/)
      expect(File.read(File.join(socket_folder, "report.txt"))).to match(/^ *[\d.]+ [KM]iB .* examples\/shop\.rb:12$/)
      expect(typed(stop, pid)).to match(/^=> #<Memintro::Totals live [\d.]+ [KM]iB in \d+ blocks, allocated /)
      expect(shown.values_at(start, report, stop)).to eq(["", "", ""])
    end
  end

  it "makes a process listen that did not before" do
    expect(rbtrace("Memintro.listen")).to eq(File.join(socket_folder, "#{program.pid}.sock").inspect)
    expect(memintro("top", program.pid).must_succeed.stdout).to include("pid #{program.pid}")
  end
end
