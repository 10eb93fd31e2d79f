# frozen_string_literal: true

require_relative "../spec_helper"

# Each run is a real RSpec in a process of its own, on the examples of spec/fixtures/tests/memory_spec.rb.
RSpec.describe "require \"memintro/rspec\"" do
  let(:path) { "#{TestRuns::FOLDER}/memory_spec.rb" }

  # The line of the file where this stands.
  def line(text) = File.readlines(path).index { |line| line.include?(text) } + 1
  describe "a run" do
    before(:all) { @outcomes, @status = rspec_run("memory_spec.rb") }

    def message(name) = @outcomes.fetch("fails: #{name}").message.strip

    it "passes and fails as it should, and fails as a whole" do
      expected = @outcomes.keys.to_h { |name| [name, name.start_with?("passes") ? "passed" : "failed"] }
      expect(@outcomes.transform_values(&:status)).to eq(expected)
      expect([@outcomes.size, @status.exitstatus]).to eq([33, 1])
    end

    it "says of a native leak how much, where, and how surely" do
      at = "#{path}:#{line('fails: native leak')}"
      expect(message("native leak")).to eq(<<~TEXT.strip)
        the block leaked 64 bytes an iteration: 12,800 bytes over 200 iterations, at #{shown(at)}

        left of malloc's blocks, by line:
         bytes  blocks
        12,800     200  #{shown(at)}
      TEXT
    end

    def shown(name) = name.delete_prefix("#{Dir.pwd}/")

    it "says between which figures a leak is that is not always the same" do
      figures = message("uneven leak")[/\Athe block leaked (.*) over 200 iterations, at .*:\d+$/, 1]
      figures = figures.match(/\A([\d.]+) bytes an iteration \(between ([\d.]+) and ([\d.]+)\): ([\d,]+) bytes\z/)
      median, low, high = figures.captures.first(3).map(&:to_f)
      expect([60, low, median, high, 68]).to eq([60, low, median, high, 68].sort)
      expect(figures[4].delete(",").to_i).to be_between(200 * 62, 200 * 66)
    end

    it "says of leaked objects their classes, their lines, and who holds them" do
      text = message("object leak")
      first = text.lines.first
      bytes = first[/leaked ([\d.]+) bytes an iteration/, 1].to_f
      expect(bytes).to be_between(80, 300)
      expect(first).to match(/: [\d,]+ bytes over 200 iterations, at #{Regexp.escape(shown("#{path}:"))}\d+$/)
      expect(text).to match(/^ *[\d,]+ +200  Message, at .*memory_spec\.rb:#{line('fails: object leak')}$/)
      expect(text).to match(/^ *[\d,]+ +200  String, at .*memory_spec\.rb:#{line('def initialize')}$/)
      expect(text).to match(/^held by:\n.*ARCHIVE/)
    end

    it "says how much of a leak is stacks of fibers, which no table has" do
      expect(message("fiber leak"))
        .to match(/\Athe block leaked [\d.,]+ bytes an iteration.*, of it (?:8|12|16|20)\.0 KiB stacks of fibers: /)
      expect(message("fiber leak")).to match(/^held by:\n(?:Fiber .*Enumerator.*|Array\[\] ← .*)?ARCHIVE/)
    end

    it "says what was found instead, where the opposite was expected" do
      expect(message("no leak"))
        .to match(/ the block to leak memory, but it left (nothing|[\d,]+ bytes) over 100 iterations(, which do not|$)/)
      expect(message("allocate less"))
        .to match(/\Aexpected the block to allocate more than 5,000 bytes an iteration, but it allocated 1,\d{3} b/)
      expect(message("retain no object")).to eq("expected the block to retain Message, but it retained none")
    end

    it "says how much an iteration allocates and retains, and where" do
      at = Regexp.escape(shown("#{path}:#{line('fails: allocate"')}"))
      expect(message("allocate")).to match(/\Athe block allocated 1,\d{3} bytes an iteration, more than 500, at #{at}$/)
      expect(message("allocate")).to match(/^ *1,001 +1  #{at}$/)
      expect(message("retain bytes")).to match(/\Athe block retained 1,\d\d\d bytes an iteration, more than 100, at /)
      expect(message("retain bytes")).to match(/^held by:\n.*RSpec::ExampleGroups::Memory#@one/)
      expect(message("retain an object")).to match(/\Athe block retained 1 Message an iteration, at /)
    end

    it "checks each of several matchers by itself" do
      expect(message("second of two")).to start_with("the block retained 1,0")
      expect(message("first of two")).to include("the block leaked 64 bytes an iteration", "...and:",
                                                 "the block allocated ").and match(/more than 60, at/)
    end

    it "answers misuse in plain words, and lets the block's own error pass" do
      expect(message("value")).to include("leak_memory needs a block, and was given 5: write expect { … } with")
      expect(message("nothing")).to include("You must pass either an argument or a block to `expect`")
      expect(message("too few")).to include("iterations is 3; it must be an Integer from 10 to 1000000")
      expect(message("unknown option")).to include("unknown keyword: :every")
      expect(message("bytes")).to include("bytes is \"1 MB\"; it must be an Integer from 0")
      expect(message("no class")).to include("\"Message\" is not a class")
      expect(message("raises")).to include("the block's own")
      expect(message("stops")).to include("memory could not be measured: tracking was started, stopped or cleared")
    end
  end

  %w[full sampled].each do |mode|
    it "leaves #{mode} tracking as it was" do
      outcomes, = rspec_run("memory_spec.rb", "--example", "passes", env: { "MODE" => mode })
      expect(outcomes.transform_values(&:status).values.tally).to eq("passed" => 13)
    end
  end

  it "skips under MEMINTRO_DISABLE, and says why" do
    outcomes, status = rspec_run("memory_spec.rb", "--example", "native", env: { "MEMINTRO_DISABLE" => "1" })
    expect(outcomes.values.map(&:to_a)).to eq([["pending", "MEMINTRO_DISABLE=1 is set, so memory is not measured"]])
    expect(status.exitstatus).to eq(0)
  end

  it "fails with the reason where there is no hook" do
    Dir.mktmpdir do |folder|
      FileUtils.cp_r("#{Subprocess::LIB}/.", folder)
      FileUtils.rm("#{folder}/memintro/libmemintro_hook.so")
      # RSpec itself looks into the folder `lib` of where it runs.
      outcomes, status = rspec_run("memory_spec.rb", "--example", "passes: clean", lib: folder, chdir: folder)
      expect(outcomes.values.map(&:status)).to eq(["failed"])
      expect(outcomes.values.first.message).to include("the hook could not be loaded")
      expect(status.exitstatus).to eq(1)
    end
  end

  it "works with jemalloc" do
    library = Dir["/usr/lib/*/libjemalloc.so.2"].first or skip "no jemalloc here"
    outcomes, = rspec_run("memory_spec.rb", *%w[clean native object\ leak].flat_map { |name| ["--example", name] },
                          env: { "LD_PRELOAD" => library })
    expect(outcomes.transform_values(&:status)).to eq("passes: clean" => "passed", "fails: native leak" => "failed",
                                                      "fails: object leak" => "failed")
    expect(outcomes["fails: native leak"].message).to include("leaked 64 bytes an iteration")
  end

  it "is not loaded by memintro itself" do
    code = "puts $LOADED_FEATURES.grep(/rspec|minitest|memory_claim|rounds/).size"
    expect(run_ruby(code: code).must_succeed.stdout).to eq("0\n")
  end
end
