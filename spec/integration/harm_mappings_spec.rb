# frozen_string_literal: true

require "spec_helper"

# A process that has nearly as many mappings as the kernel allows: Ruby ends itself where it gets no more, so memintro
# takes none of the last ones.
RSpec.describe "A process with few mappings left" do
  before { skip "vm.max_map_count is high" if Integer(File.read("/proc/sys/vm/max_map_count")) > 200_000 }

  # The hook is there already where it is preloaded, or has tracked before.
  first = RUBY_VERSION >= "3.3" ? "ExhaustedError" : "UnsupportedError"
  { live: first, preloaded: "ExhaustedError" }.each do |way, refusal|
    it "goes on where memintro is asked for all that it can (#{way})" do
      env = way == :preloaded ? { "LD_PRELOAD" => Subprocess::HOOK } : {}
      lines = run_ruby("few_mappings.rb", 1, 4, 8, env: env).must_succeed.stdout.lines
      said = lines.map { |line| JSON.parse(line, symbolize_names: true) }
      expect(said.map { |one| one[:spare] }).to eq(%w[1 4 8])
      said.each do |one|
        results = one[:results]
        expect(results.values_at(:start, :sampled))
          .to all(match(/\AMemintro::#{refusal}: this process has 65,?\d+ mappings, and the kernel allows \d+/))
        expect(results.values).to all(match(/\Aok\z|\AMemintro::\w+Error: /))
        expect(one[:work]).to eq((0...2_000).sum { |number| number.to_s.size * 2 })
      end
    end
  end
end
