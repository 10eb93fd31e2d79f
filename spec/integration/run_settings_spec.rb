# frozen_string_literal: true

require_relative "../spec_helper"
require "fileutils"
require "tmpdir"
require_relative "../support/other_user"

# How `memintro run` and `env` hand flags and variables on, and what they refuse.
RSpec.describe "settings of memintro run" do
  include OtherUser

  let(:folder) { Dir.mktmpdir("memintro-settings") }

  after { FileUtils.rm_rf(folder) }

  def path(name) = File.join(folder, name)

  def run(*flags, code:, **options)
    run_memintro("run", *flags, "--", RbConfig.ruby, "-e", code, chdir: folder, **options)
  end

  describe "variables" do
    # A value of each setting that is not its default.
    values = { mode: "sampled", sample_bytes: "4096", stop_after: "60", report: "/tmp/r.%p.txt", format: "json",
               top: "7", by: "growth", every: "60", app_root: "/usr", compat: "mwrap", native_children: "1",
               objects: "1", stack_depth: "16", native_callers: "1", max_sites: "1000", max_tracker_bytes: "8388608" }
    variables = values.to_h { |name, value| ["MEMINTRO_#{name.upcase}", value] }

    it "reach the command as flags do, all of them" do
      code = "print Memintro.configuration.to_h.map { |name, value| \"\#{name}=\#{value}\" }.sort.join(' ')"
      names = run_ruby(code: "puts Memintro::Settings::ALL.map(&:name)", requires: ["memintro/support/settings"])
              .must_succeed.stdout.split
      expect(values.keys.map(&:to_s)).to match_array(names)
      values.each do |name, value|
        needed = name == :sample_bytes ? { "MEMINTRO_MODE" => "sampled" } : {}
        needed = { "MEMINTRO_REPORT" => "/tmp/r.%p.txt" } if name == :native_children
        expect(run(code: code, env: needed.merge("MEMINTRO_#{name.upcase}" => value)).must_succeed.stdout)
          .to match(/\b#{name}=#{Regexp.escape(value == '1' ? 'true' : value)}(\.0)?( |\z)/)
      end
    end

    it "are printed by env, all of them" do
      printed = run_memintro("env", env: variables).must_succeed.stdout.shellsplit.to_h { |pair| pair.split("=", 2) }
      expect(printed).to include(variables)
    end

    it "give way to flags" do
      code = "print Memintro.mode, ' ', Memintro.configuration.top"
      result = run("--mode", "full", "--top", "3", "--report", "r.%p", code: code, env: variables)
      expect(result.must_succeed.stdout).to eq("full 3")
    end

    it "name a report as --report does: absolute, and refused at once where it cannot be" do
      Dir.mkdir(path("elsewhere"))
      run(code: "Dir.chdir('elsewhere')", env: { "MEMINTRO_REPORT" => "r.txt" }).must_succeed
      expect([File.exist?(path("r.txt")), Dir.children(path("elsewhere"))]).to eq([true, []])
      refused = run(code: "puts 1", env: { "MEMINTRO_REPORT" => "no/r.txt" })
      expect([refused.status.exitstatus, refused.stdout, refused.stderr])
        .to eq([1, "", "memintro: MEMINTRO_REPORT no/r.txt: there is no folder #{path('no')}\n"])
    end

    it "name a report without the command as well, also for the processes that it starts" do
      Dir.mkdir(path("elsewhere"))
      code = "Dir.chdir('elsewhere'); system(#{RbConfig.ruby.inspect}, '-e', '')"
      run_ruby(code: code, requires: ["memintro/autorun"], chdir: folder,
               env: { "MEMINTRO_REPORT" => "r.%p.txt",
                      "RUBYOPT" => "-r#{Subprocess::LIB}/memintro/autorun" }).must_succeed
      expect([Dir.children(folder).grep(/\Ar\.\d+\.txt\z/).size, Dir.children(path("elsewhere"))]).to eq([2, []])
    end

    it "that name a missing folder are reported at the start, once" do
      result = run_ruby(code: "STDERR.puts 'begins'", requires: ["memintro/autorun"], chdir: folder,
                        env: { "MEMINTRO_REPORT" => "no/r.txt" }).must_succeed
      told = "MEMINTRO_REPORT is no/r.txt: there is no folder #{path('no')}"
      expect(result.stderr.sub(/\d+/, "N")).to eq("memintro: no report of process N: #{told}\nbegins\n")
    end
  end

  describe "values" do
    { "--max-tracker-bytes" => ["5", "a whole number of at least 4194304"],
      "--max-sites" => ["99999999", "a whole number from 1 to 16777216"] }.each do |flag, (value, allowed)|
      it "of #{flag} that cannot be kept are refused" do
        result = run(flag, value, code: "puts 1")
        expect([result.status.exitstatus, result.stdout, result.stderr])
          .to eq([2, "", "memintro: #{flag} is #{value.inspect}; it must be #{allowed}\n"])
        name = flag.delete_prefix("--").tr("-", "_")
        told = run_ruby(code: <<~RUBY)
          begin
            Memintro.configure { |c| c.#{name} = #{value} }
          rescue ArgumentError => e
            puts e.message
          end
        RUBY
        expect(told.stdout).to eq("#{name} is #{value}; it must be #{allowed}, or nil\n")
      end
    end

    it "of --report may be any name a file can have" do
      name = "nu\xFF.%p.txt".b
      env = { "LC_ALL" => "C.UTF-8" }
      run("--report", name, code: "", env: env).must_succeed
      printed = run_memintro("env", "--report", name, chdir: folder, env: env).must_succeed.stdout.b.chomp
      run_command("sh", "-c", "#{printed} #{RbConfig.ruby} -e ''".b, env: env).must_succeed
      expect(Dir.children(folder).map { |file| file.b[0, 4] }).to eq(["nu\xFF.".b] * 2)
      others = %w[docker systemd].map { |syntax| run_memintro("env", "--report", name, "--for", syntax, env: env) }
      expect(others.map { |result| result.stdout.b }).to all(include("nu\xFF.".b))
    end
  end

  describe "devices" do
    %w[/dev/null /dev/stderr /dev/stdout].each do |device|
      it "such as #{device} take reports, of other users too" do
        result = run_memintro_as_nobody("run", "--report", device, "--", RbConfig.ruby, "-e", "")
        written = { "/dev/stderr" => result.stderr, "/dev/stdout" => result.stdout }
        expect([result.status.exitstatus, result.stdout + result.stderr]).to match([0, written[device] || ""])
        expect(written[device] || "memintro ").to start_with("memintro ")
      end
    end

    it "are no reason for doctor to complain to other users" do
      result = run_memintro_as_nobody("doctor")
      expect([result.status.exitstatus, result.stdout.lines.last]).to eq([0, "memintro run: works\n"])
    end
  end

  describe "MEMINTRO_DISABLE=1" do
    let(:env) { { "MEMINTRO_DISABLE" => "1" } }

    it "leaves a program what it requires" do
      mwrap = run("--compat", "mwrap", code: "require 'mwrap'; Mwrap.clear; p Mwrap.each.to_a", env: env)
      memintro = run(code: "require 'memintro'; p Memintro.tracking?", env: env)
      expect([mwrap, memintro].map { |result| result.must_succeed.stdout }).to eq(%W[[]\n false\n])
      printed = run_memintro("env", "--compat", "mwrap").must_succeed.stdout.chomp
      code = "require 'mwrap'; require 'memintro'; p 1"
      result = run_command("sh", "-c", "#{printed} #{RbConfig.ruby} -e \"#{code}\"", env: env)
      expect([result.must_succeed.stdout, result.stderr]).to eq(["1\n", ""])
    end

    it "is named by doctor as the obstacle" do
      result = run_memintro("doctor", env: env)
      expect([result.status.exitstatus, result.stderr]).to eq([1, ""])
      expect(result.stdout).to end_with("memintro run: does not work: MEMINTRO_DISABLE=1 is set\n")
    end
  end

  it "have mwrap there for what the command line requires" do
    command = [RbConfig.ruby, "-rmwrap", "-e", "print Mwrap.total_bytes_allocated.positive?"]
    expect(run_memintro("run", "--compat", "mwrap", "--", *command).must_succeed.stdout).to eq("true")
    %w[shell docker systemd].each do |syntax|
      expect(run_memintro("env", "--compat", "mwrap", "--for", syntax).must_succeed.stdout)
        .to match(%r{RUBYLIB="?#{Subprocess::LIB}/memintro/compat})
    end
  end
end
