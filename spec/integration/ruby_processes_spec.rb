# frozen_string_literal: true

require "spec_helper"

# Children of a tracked, multi-threaded Ruby process, by every way there is to make one.
RSpec.describe "Children of a tracked Ruby", :race do
  def processes(*arguments, way:, **options)
    run_ruby("processes.rb", *arguments, way: way, **options).must_succeed.json.fetch(:result)
  end

  TruthDriver::WAYS.each do |way|
    context "when #{way}" do
      it "go on from exact copies after fork and double fork" do
        expect(processes("fork", way: way)).to eq(right: 30, parent: true)
      end

      it "go on from an exact copy after Process.daemon" do
        Dir.mktmpdir do |folder|
          expect(processes("daemon", File.join(folder, "daemon"),
                           way: way)).to eq(right: true, another: true, parent: true)
        end
      end

      it "go on from exact copies after IO.popen(\"-\")" do
        expect(processes("popen", way: way)).to eq(answers: { right: 20 })
      end

      %w[nobody same].each do |user|
        it "change nothing in their parent's memory before they exec, as #{user == 'same' ? 'the same user' : user}" do
          skip "only root can become nobody" if user == "nobody" && !Process.uid.zero?
          results = { "true" => 15, "false" => 15, '"out"' => 15, '"err\nin"' => 0, "4" => 15, "nil" => 15 }
          figures = processes("unprivileged", user, way: way)
          streams = figures[:results].reject { |name, _| results.key?(name.to_s) }
          expect(figures).to include(unchanged: true, live: true)
          expect(figures[:results].transform_keys(&:to_s)).to include(results.reject { |_, count| count.zero? })
          expect(streams.values.sum + figures[:results].fetch(:'"err\nin"', 0)).to eq 15
          expect(figures[:uid]).to eq(user == "nobody" ? Etc.getpwnam("nobody").uid : Process.uid)
        end
      end

      it "that are not Ruby run unharmed" do
        expect(processes("spawn", way: way))
          .to eq(ls: "/\n/tmp\n", sh: "42\n", status: 5, ps: true, env: way == :preloaded ? Subprocess::HOOK : "")
      end
    end
  end

  it "are tracked from their own start after exec when preloaded, and not when started live" do
    { preloaded: [true, true], live: [false, false] }.each do |way, expected|
      expect(processes("exec", RbConfig.ruby, Subprocess::LIB, way: way)).to eq expected
    end
  end

  it "of a privileged program are left alone" do
    skip "only root can make a privileged program" unless Process.uid.zero?
    Dir.mktmpdir do |folder|
      File.chmod(0o755, folder)
      privileged = File.join(folder, "privileged")
      FileUtils.cp(program("live.c"), privileged)
      hook = File.join(folder, "hook.so")
      FileUtils.cp(Subprocess::HOOK, hook)
      File.chmod(0o4755, privileged)
      File.chmod(0o755, hook)
      refused = run_command("setpriv", "--reuid=65534", "--clear-groups", privileged, "options",
                            env: { "MEMINTRO_HOOK" => hook, "MEMINTRO_MODE" => "full" })
      # The loader itself drops the preload; a hook that the program loads by hand refuses to start (MEMINTRO_DISABLED).
      expect([refused.status.exitstatus, refused.json]).to match [0, include(start: -3, allocations: 0, mode: 0)]
    end
  end
end
