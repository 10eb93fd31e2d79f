# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "support/foreign_programs"

# Other hooks: both work, in either order.
RSpec.describe "Beside another profiler", :programs do
  include ForeignPrograms

  describe "stackprof" do
    before { need("stackprof") }

    let(:command) { [RbConfig.ruby, "-I#{Subprocess::LIB}", File.join(ForeignPrograms::FOLDER, "stackprof.rb")] }

    ["memintro first", "profiler first"].each do |order|
      %i[live preloaded].each do |way|
        it "both see the work, #{order}, #{way}" do
          bare = run_command(*command, env: program_env).must_succeed
          env = program_env.merge("ORDER" => order, "MATRIX_START" => "1")
          tracked = run_command(*command.first(2), "-rmemintro", command.last, way: way, env: env).must_succeed
          expect(tracked.stdout).to eq(bare.stdout)
          expect(bare.stdout.lines.last).to eq("[[:wall, true, true], [:cpu, true, true], [:object, true, true]]\n")
          # Each of three runs: 300,000 strings with one in each, all beyond the largest slot; 3.1 takes a third buffer.
          expect(tracked.stderr.lines.map(&:to_i)).to match([be >= 600_000] * 3)
        end
      end
    end
  end

  describe "heaptrack, preloaded as well" do
    let(:heaptrack) do
      Dir["/usr/lib/{,*-linux-gnu/}heaptrack/libheaptrack_preload.so"].first || skip("heaptrack is not installed")
    end
    let(:code) do
      "Memintro.start; kept = []; 2000.times { kept << 'k' * 5000 }; puts kept.sum(&:size); " \
        "warn Memintro['-e:1']&.live_bytes.to_i"
    end

    { "memintro first" => ->(ours, theirs) { "#{ours}:#{theirs}" },
      "heaptrack first" => ->(ours, theirs) { "#{theirs}:#{ours}" } }.each do |order, preload|
      it "both see the work, #{order}" do
        Dir.mktmpdir do |folder|
          record = File.join(folder, "heaptrack.record")
          env = { "LD_PRELOAD" => preload[Subprocess::HOOK, heaptrack], "MEMINTRO_MODE" => "full",
                  "DUMP_HEAPTRACK_OUTPUT" => record }
          result = run_ruby(code: code, env: env).must_succeed
          expect(result.stdout).to eq("10000000\n")
          expect(result.stderr.lines.last.to_i).to be_between(10_000_000, 12_000_000)
          expect(File.size(record)).to be > 20_000
        end
      end
    end

    it "a live start under it sees the work" do
      Dir.mktmpdir do |folder|
        env = { "LD_PRELOAD" => heaptrack, "DUMP_HEAPTRACK_OUTPUT" => File.join(folder, "heaptrack.record") }
        result = run_ruby(code: "#{code}; Memintro.stop", env: env).must_succeed
        expect(result.stdout).to eq("10000000\n")
        expect(result.stderr.lines.last.to_i).to be_between(10_000_000, 12_000_000)
      end
    end
  end

  describe "Puma with 4 workers" do
    before { need("puma") }

    # Their PSS together in kB, and the allocations that the threads of those workers have seen that answered.
    def workers(**tracked)
      in_folder do |folder|
        file = File.join(folder, "pss")
        env = program_env.merge("PUMA_PSS" => file, **tracked)
        run_command(*command(:puma), **options(folder), env: env).must_succeed
        JSON.parse(File.read(file)).values_at("pss_kb", "tracked")
      end
    end

    it "cost at most 12 MB of PSS more in each worker when tracking began before the fork" do
      env = { "RUBYOPT" => "-r#{ForeignPrograms::AUTORUN}", "MEMINTRO_REPORT" => "/dev/null" }
      # A collection more or less moves megabytes of what workers share.
      rounds = Array.new(3) { [workers, workers(**env)] }
      rounds.each do |(_, untracked), (_, tracked)|
        expect(untracked).to all(eq(0))
        # Each request makes 100 strings that are too long for their slot, and an array of them.
        expect(tracked).to all(be > 100)
      end
      added_kb = rounds.map { |(bare, _), (with, _)| (with - bare) / 4 }.sort
      said = "        each worker: #{added_kb[1]} kB of PSS more (#{added_kb.join(', ')})"
      RSpec.configuration.reporter.message(said)
      expect(added_kb[1]).to be < 12 * 1024
    end
  end
end
