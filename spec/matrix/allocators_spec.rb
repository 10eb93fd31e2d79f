# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "support/allocators"

# Allocators other than glibc's, and glibc's with settings that are rarely tested.
RSpec.describe "Other allocators" do
  exact = { differences: "", wrong_sites: 0, wrong_threads: 0, corrupt: 0, totals_agree: true, missed_frees: 0,
            dropped: 0 }.freeze
  ruby = { malloc: [1000, 1000, 1_024_000, 1_024_000], realloc: [1000, 400, 4_096_000, 1_638_400],
           string: [1000, 250, 5_001_000, 1_250_250], array: [1000, 0, 8_000_000, 0],
           block: [1000, 1000, 333_000, 333_000], missed_frees: 0 }.freeze

  Allocators::PATTERNS.each_key do |name|
    describe name do
      let(:seeds) { 15 }
      let(:library) { Allocators.library(name) or skip "#{name} is not installed" }

      def preload(way) = { "LD_PRELOAD" => way == :preloaded ? "#{Subprocess::HOOK}:#{library}" : library }

      def in_front = { "LD_PRELOAD" => "#{library}:#{Subprocess::HOOK}", "MEMINTRO_MODE" => "full" }

      let(:sentence) { /#{Regexp.escape(File.basename(library))}.* answers malloc before .*LD_PRELOAD/ }

      # An allocator that this program does not live with for long is shown in as many short runs.
      def short_runs(way, variant)
        (1..seeds).filter_map do |seed|
          truth(operations: 1_000, seed: seed, way: way, variant: variant, env: preload(way))
        rescue RuntimeError => e
          raise unless e.message.include?("SIGSEGV") || e.message.include?("SIGABRT")
        end
      end

      TruthDriver::WAYS.each do |way|
        %i[lazy now no_plt no_pie].each do |variant|
          it "is followed exactly, C++ included, #{way}, by a program linked #{variant}" do
            if Allocators.survived?(library)
              expect(truth(operations: 300_000, way: way, variant: variant, env: preload(way))).to include(exact)
            else
              verdicts = short_runs(way, variant)
              expect(verdicts).to all(include(exact))
              expect(verdicts.size).to be >= seeds * 3 / 4
            end
          end
        end

        it "is followed exactly in what the C and C++ libraries allocate, #{way}" do
          figures = native(program("libraries.cc"), way: way, env: preload(way))
          expect(figures).to include(string: [1, 1, 1001, 1001], map: [100, 100, 4000, 4000], list: [7, 7, 672, 672],
                                     aligned: [1, 1, 256, 256], strdup: [1, 1, 10, 10], strndup: [1, 1, 5, 5])
        end

        it "is followed exactly in what a C++ library takes that comes and goes, #{way}" do
          plugin = shared_module("cxx_plugin.cc")
          told = native(program("reload.c"), 20, 1, 1000, plugin, way: way, env: preload(way))
          expect(told).to include(missed_frees: 0, bases: 20)
          figures = told[:sites].map { |site| site[3, 3] }
          expect(figures).to match_array([[20, 2020, 0], [20, 2560, 0], [20, 4020, 4020]])
        end

        it "is followed exactly in Ruby, #{way}" do
          figures = run_ruby("truth.rb", way: way, env: preload(way)).must_succeed.json
          expect(figures).to eq(ruby.merge(preloaded: way == :preloaded))
        end

        it "is named by the doctor, #{way}" do
          result = run_ruby(code: "puts Memintro.doctor[:allocator]", way: way, env: preload(way)).must_succeed
          expect(result.stdout.strip).to eq(File.realpath(library)).or eq(library)
        end
      end

      it "answers every corner case as without the hook" do
        env = { "BEHAVIOUR_WITHOUT_PVALLOC" => "1", "MEMINTRO_MODE" => "full" }
        outcomes = [library, "#{Subprocess::HOOK}:#{library}"].map do |preloaded|
          result = run_command(program("behaviour.cc"), env: env.merge("LD_PRELOAD" => preloaded))
          # An alignment that is no power of two is not promised: the result is chance.
          [result.status.to_s[/(exit|SIG).*/], result.stdout.lines.grep_v(/\A(memalign|aligned_alloc) (3|7|12|24):/)]
        end
        expect(outcomes.first.last.size).to be > 50
        expect(outcomes.last).to eq(outcomes.first)
      end

      ["", "Memintro.stop; "].each do |before|
        it "before the hook is said loudly by #{before}start" do
          code = "#{before}begin; Memintro.start; rescue Memintro::NotSeenError => e; puts e.message; end"
          result = run_ruby(code: code, env: in_front).must_succeed
          expect(result.stdout).to match(sentence)
        end
      end

      it "before the hook is said by start in another mode, by track and by the report" do
        ["Memintro.start(mode: :sampled)", "Memintro.track { 'x' * 100_000 }"].each do |call|
          code = "begin; p #{call}; rescue Memintro::NotSeenError => e; puts e.message; end"
          expect(run_ruby(code: code, env: in_front).must_succeed.stdout).to match(sentence)
        end
        expect(run_ruby(code: "Memintro.report", env: in_front).must_succeed.stdout)
          .to match(/^memintro sees no allocation .*:\n.*#{sentence}/)
      end

      it "before the hook is said by the doctor" do
        result = run_memintro("doctor", env: { "LD_PRELOAD" => "#{library}:#{Subprocess::HOOK}" })
        expect(result.stdout).to match(/^Problems:\n.*#{Regexp.escape(File.basename(library))} before memintro's hook/)
      end
    end
  end

  describe "glibc's own" do
    { "MALLOC_ARENA_MAX" => "1", "MALLOC_PERTURB_" => "165", "MALLOC_TOP_PAD_" => "3", "MALLOC_MMAP_THRESHOLD_" => "65",
      "MALLOC_TRIM_THRESHOLD_" => "0" }.each do |variable, value|
      TruthDriver::WAYS.each do |way|
        it "is followed exactly with #{variable}=#{value}, #{way}" do
          expect(truth(operations: 100_000, way: way, env: { variable => value })).to include(exact)
          figures = run_ruby("truth.rb", way: way, env: { variable => value }).must_succeed.json
          expect(figures).to include(ruby)
        end
      end
    end

    ["tcache_count=0", "tcache_count=1", "tcache_count=127", "tcache_max=40", "tcache_max=131072", "mxfast=0",
     "tcache_unsorted_limit=1", "hugetlb=1"].each do |tunable|
      TruthDriver::WAYS.each do |way|
        it "is followed exactly with glibc.malloc.#{tunable}, #{way}" do
          env = { "GLIBC_TUNABLES" => "glibc.malloc.#{tunable}" }
          expect(truth(operations: 100_000, way: way, env: env)).to include(exact)
          expect(run_ruby("truth.rb", way: way, env: env).must_succeed.json).to include(ruby)
        end
      end
    end
  end
end
