# frozen_string_literal: true

require_relative "../spec_helper"
require "tmpdir"

# `Memintro.start(stack_depth: N)`: call sites are whole stacks, and lines have their sums.
RSpec.describe "whole stacks" do
  def answer_of(*arguments)
    run_ruby("stacks.rb", *arguments, requires: %w[memintro]).must_succeed.json
  end

  def answer(code, **options)
    JSON.parse(run_ruby(code: code, requires: %w[memintro json stringio], **options).must_succeed.stdout,
               symbolize_names: true)
  end

  # A leak with two callers; one calls three times as often.
  TWO_CALLERS = <<~RUBY
    KEEP = []
    def leak(size) = KEEP << ("x" * size)
    def often = leak(9_999)
    def seldom = [1].each { leak(9_999) }
    def work = 300.times { |i| i % 4 == 0 ? seldom : often }
  RUBY

  # Each stack is asked for its blocks, and each answer looks at all blocks.
  { 1_000 => {}, 4_000 => { long: true } }.each do |count, tags|
    it "are those that Ruby tells, of #{count} different ways", **tags do
      # Ruby 3.4 sometimes has no line for a frame yet: such an allocation counts for its line alone.
      expect(answer_of(64, count))
        .to include(seen: be >= (RUBY_VERSION < "3.4" ? 0.99 : 0.975) * count, wrong: 0, examples: [],
                    stacks: be > 0.5 * count, deepest: be > 30)
    end
  end

  it "are cut to the innermost lines, and a line has the sums" do
    found = answer_of(5, 2_000)
    expect(found).to include(seen: be >= (RUBY_VERSION < "3.4" ? 1_980 : 1_950), wrong: 0, examples: [],
                             stacks: be < 2_000)
    expect(found[:sums]).to eq(found[:line])
  end

  it "are right while the collector runs at every allocation, and moves objects" do
    expect(answer_of(32, 400, "stress")).to include(seen: be >= 380, wrong: 0, examples: [])
  end

  it "are right where code is freed, and other code gets its addresses" do
    found = answer(<<~RUBY)
      Memintro.start(stack_depth: 8)
      KEEP = Array.new(800)
      $kept = -1
      # Methods of one name and path, whose lines differ. Each lives for two collections.
      400.times do |i|
        eval("def made(size)\n" + "\n" * (i % 40) + "KEEP[$kept += 1] = 'x' * size\nend\ndef calls(size) = made(size)\n",
             TOPLEVEL_BINDING, "made.rb", 1)
        2.times { calls(5_000 + i % 40); GC.start(full_mark: i % 8 == 0) }
      end
      stacks = Memintro.stacks(1_000).select { |site| site.path == "made.rb" && site.stack[1]&.label == "calls" }
      lines = stacks.map { |site| [site.lineno, site.stack[1].line, site.live_blocks, site.live_bytes] }
      puts JSON.generate(lines: lines.sort)
    RUBY
    expected = (0...40).map { |i| [i + 2, i + 4, 20, 20 * (5_001 + i)] }
    # Additional allocations of the very first call belong to the first line.
    expect(found[:lines].drop(1)).to eq(expected.drop(1))
    expect(found[:lines].first).to match([2, 4, be_between(20, 25), be >= expected.first.last])
  end

  it "leave the figures of lines as they are without" do
    figures = [1, 2, 16, 64].map do |depth|
      answer("#{TWO_CALLERS}DEPTH = #{depth}\n" + read_program("stacks/figures_of_lines.rb"))
    end
    expect(figures.uniq).to eq([figures.first])
    expect(figures.first).to include(bytes: [300] * 5, blocks: 300, whole: true, classes: 300,
                                     objects: [300, be > 0, 600], place: ["-e:2", "-e", 2, "ruby"])
  end

  it "name the callers of a line by weight, and group what lines have in common" do
    found = answer(<<~RUBY)
      #{TWO_CALLERS}
      Memintro.start(stack_depth: 8)
      work
      names = ->(sites) { sites.map { |site| [site.name, site.live_bytes / 10_000] } }
      stacks = Memintro.stacks(nil, site: "-e:2")
      puts JSON.generate(
        stacks: stacks.map { |site| [site.live_bytes / 10_000, site.stack.map(&:label)] },
        line: Memintro["-e:2"].stack.map(&:to_s),
        file: names[Memintro.top(1, group: :file)], gem: names[Memintro.top(1, group: :gem)],
        method: names[Memintro.top(1, group: :method)], app: names[Memintro.top(1, group: :app)],
        stack: names[Memintro.top(2, group: :stack)])
    RUBY
    expect(found[:stacks].first(2)).to match(
      [[225, start_with("leak", "often", "block in work")], [75, start_with("leak", "block in seldom", "seldom")]]
    )
    expect(found).to include(line: ["-e:2"], file: [["-e", 300]], gem: [["(app)", be_between(300, 301)]],
                             method: [["leak (-e)", 300]], app: [["-e:2", 300]], stack: [["-e:2", 225], ["-e:2", 75]])
  end

  it "are written for flame graphs and speedscope, in JSON, and in text under their lines" do
    found = answer(<<~RUBY)
      #{TWO_CALLERS}
      Memintro.start(stack_depth: 8)
      work
      texts = %i[folded speedscope json text].to_h { |format| [format, StringIO.new.tap { |io| Memintro.report(io, format: format) }.string] }
      puts JSON.generate(texts)
    RUBY
    folded = found[:folded].lines.map { |line| line.match(/\A(.*) (\d+)\n\z/).captures }
    expect(folded.map { |frames, bytes| [frames.split(";").last(2), bytes.to_i / 10_000] })
      .to include([["often (-e:3)", "leak (-e:2)"], 225], [["block in seldom (-e:4)", "leak (-e:2)"], 75])
    speedscope = JSON.parse(found[:speedscope], symbolize_names: true)
    profile = speedscope[:profiles].first
    expect(profile).to include(type: "sampled", unit: "bytes", startValue: 0, endValue: profile[:weights].sum)
    heaviest = profile[:samples][profile[:weights].index(profile[:weights].max)]
    expect(heaviest.map { |frame| speedscope[:shared][:frames][frame][:name] }.last(2)).to eq(%w[often leak])
    expect(found[:text]).to match(/Their heaviest callers:\n-e:2\n +2\.\d MiB  often -e:3 < block in work/)
    expect_to_be_read_back(found[:json], found[:folded])
  end

  def expect_to_be_read_back(json, folded)
    Dir.mktmpdir do |folder|
      file = File.join(folder, "report.json")
      File.write(file, json)
      again = run_memintro("report", "--format", "folded", file).must_succeed.stdout
      expect(again.lines.grep(/leak/).sort).to eq(folded.lines.grep(/leak/).sort)
    end
  end

  it "are estimated in sampled mode, and their sums are the line's estimates" do
    found = answer(<<~RUBY)
      #{TWO_CALLERS}
      Memintro.start(mode: :sampled, sample_bytes: 20_000, stack_depth: 8)
      20.times { work }
      site = Memintro["-e:2"]
      stacks = Memintro.stacks(nil, site: site)
      puts JSON.generate(line: site.live_bytes, error: site.live_bytes_standard_error, sum: stacks.sum(&:live_bytes),
                         sum_error: Math.sqrt(stacks.sum { |one| one.variance(:live_bytes) }),
                         shares: stacks.group_by { |one| one.stack[1].label }.transform_values { |all| all.sum(&:live_bytes) })
    RUBY
    expect(found[:sum]).to be_within(found[:error] / 100).of(found[:line])
    expect(found[:line]).to be_within(4 * found[:error]).of(6_000 * 10_000)
    expect(found[:shares][:often].fdiv(found[:line])).to be_within(0.1).of(0.75)
  end

  it "go on in a forked child, begin anew with another depth, and end with depth 1" do
    found = answer(TWO_CALLERS + read_program("stacks/forked_child.rb"))
    expect(found).to include(child: [225, 225, 75, 75], fresh: nil, one: be_between(300, 301),
                             two: [[225, %w[leak often]], [75, ["leak", "block in seldom"]]],
                             refusal: include("stack_depth: 16"))
  end

  it "are tracked from the start of a program, and shown by commands without a depth" do
    Dir.mktmpdir do |folder|
      file = File.join(folder, "report.json")
      run_memintro("run", "--stack-depth", "8", "--format", "json", "--report", file, "--", RbConfig.ruby, "-e",
                   "#{TWO_CALLERS}work").must_succeed
      stacks = run_memintro("report", "--format", "folded", file).must_succeed.stdout
      expect(stacks.lines.map(&:chomp)).to include(/often \(-e:3\);leak \(-e:2\) 22[56]\d{4}\z/)
    end
    refused = run_memintro("run", "--stack-depth", "65", "--", "true")
    expect(refused.stderr).to include("--stack-depth is \"65\"; it must be a whole number from 1 to 64")
    expect(run_ruby(code: "Memintro.start(stack_depth: 0)").stderr).to include("stack_depth is 0")
  end

  # As bytes of each stack of line 2; and of classes, what a report says of objects.
  def dumped(folder, ending, *flags)
    code = "#{TWO_CALLERS}work; OBJECTS = Array.new(3_000) { Object.new }; GC.start\n#{ending}"
    path = File.join(folder, "dump")
    run_memintro("run", "--stack-depth", "16", *flags, "--report", path, "--", RbConfig.ruby, "-e", code)
    expect(File.binread(path, 7)).to eq("MEMINTR")
    folded = run_memintro("report", "--format", "folded", path).must_succeed.stdout
    [folded, run_memintro("report", "--top", "5", path).must_succeed.stdout]
  end

  it "are in the raw dump of a process that dies, with the objects" do
    Dir.mktmpdir do |folder|
      ["exit!(3)", "Process.kill(:SEGV, $$); sleep"].each do |ending|
        folded, text = dumped(folder, ending, "--objects")
        expect(folded.lines.map(&:chomp)).to include(
          /\A<main> \(-e:6\);work \(-e:5\);.*block in work \(-e:5\);often \(-e:3\);leak \(-e:2\) 22[56]\d{4}\z/,
          /;seldom \(-e:4\);block in seldom \(-e:4\);leak \(-e:2\) 75\d{4}\z/
        )
        expect(text).to match(/by retained_bytes:.* 3,0\d\d .* -e:6$.*Their heaviest callers:.* often -e:3 </m)
      end
    end
  end

  it "are in the raw dump of a process that samples, marked as estimates" do
    Dir.mktmpdir do |folder|
      folded, text = dumped(folder, "exit!(3)", "--mode", "sampled", "--sample-bytes", "4096")
      expect(folded).to match(/often \(-e:3\);leak \(-e:2\) \d{7}$/)
      expect(text).to match(/~[23]\.\d MiB ±.* -e:2$/)
    end
  end

  it "give way to lines when the limit of call sites is reached" do
    found = answer(<<~RUBY)
      #{TWO_CALLERS}
      Memintro.start(stack_depth: 40, max_sites: 40)
      def deep(left) = left.zero? ? leak(9_999) : deep(left - 1)
      leak(9_999)
      200.times { |i| deep(i % 35) }
      GC.disable
      blocks = ->(site) { [site.live_blocks, site.each_block.count] }
      puts JSON.generate(line: Memintro["-e:2"].live_bytes / 10_000, all: Memintro.totals.live_bytes,
                         sum: Memintro.top(nil).sum(&:live_bytes), blocks: blocks.call(Memintro["-e:2"]),
                         stacks: Memintro.stacks(nil, site: "-e:2").map { |one| [one.stack.size, *blocks.call(one)] })
    RUBY
    # Blocks without a stack of their own are a row of one line.
    expect(found[:stacks].map(&:first)).to include(1)
    expect(found[:stacks].map { |_, _, visited| visited }).to eq(found[:stacks].map { |_, live, _| live })
    expect(found[:blocks]).to eq([found[:stacks].sum { |_, live| live }] * 2)
    expect(found[:line]).to eq(201)
    # The question's own allocations come in between.
    expect(found[:sum]).to be_within(4_000).of(found[:all])
  end
end
