# frozen_string_literal: true

require "spec_helper"

# A Ruby program with known numbers of allocations of known sizes at known lines.
RSpec.describe "Figures of Ruby lines" do
  let(:expected) do
    { malloc: [1000, 1000, 1_024_000, 1_024_000], realloc: [1000, 400, 4_096_000, 1_638_400],
      string: [1000, 250, 5_001_000, 1_250_250], array: [1000, 0, 8_000_000, 0], block: [1000, 1000, 333_000, 333_000] }
  end

  { preloaded: true, live: false }.each do |way, preloaded|
    it "are exact, #{way}" do
      expect(run_ruby("truth.rb",
                      way: way).must_succeed.json).to eq expected.merge(missed_frees: 0, preloaded: preloaded)
    end

    it "are exact for 36,000 random operations of three threads, #{way}" do
      [1, 20_240_506].each do |seed|
        figures = run_ruby("truth_random.rb", seed, 12_000, way: way).must_succeed.json
        expect(figures).to include(missed_frees: 0, dropped: 0, preloaded: preloaded)
        expect(figures[:measured]).to eq(figures[:expected]), "seed #{seed}: #{figures}"
        # allocations, frees, bytes allocated, bytes freed of each of seven lines
        counts = figures[:expected].values
        expect(counts.size).to eq(7)
        expect(counts.sum { |allocations, frees,| allocations + frees }).to be > 36_000
        expect(counts.map(&:first)).to all(be > 300)
      end
    end

    it "are exact if the hook itself reads the VM's words, in fibers of threads during collections, #{way}" do
      code = read_program("ruby_truth/words.rb")
      found = run_ruby(code: code, way: way).must_succeed.json
      expect(found).to match(words: RUBY_PLATFORM.start_with?("x86_64"), blocks: be_between(1200, 1212),
                             bytes: be_between(1200 * 3001, (1200 * 3001) + 40_000))
    end

    it "are exact with jemalloc behind the hook, #{way}" do
      jemalloc = NativePrograms.jemalloc or skip "libjemalloc2 is not installed"
      preload = way == :preloaded ? "#{Subprocess::HOOK}:#{jemalloc}" : jemalloc
      figures = run_ruby("truth.rb", way: way, env: { "LD_PRELOAD" => preload }).must_succeed.json
      expect(figures).to eq expected.merge(missed_frees: 0, preloaded: preloaded)
    end
  end
end
