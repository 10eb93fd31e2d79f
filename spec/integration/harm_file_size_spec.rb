# frozen_string_literal: true

require "spec_helper"
require "tmpdir"

# The kernel ends a process with SIGXFSZ that makes a file larger than its limit (ulimit -f). So memintro writes nothing
# that does not fit: a program ends as it would without it.
RSpec.describe "A process whose files may not grow" do
  around { |example| Dir.mktmpdir { |folder| Dir.chdir(@folder = File.realpath(folder), &example) } }

  # Limits in bytes; standard error is a pipe, because a file would be subject to the limit, too.
  def run_limited(bytes, *arguments, program, env: {})
    command = [RbConfig.ruby, Subprocess::EXE, "run", *arguments, "--", RbConfig.ruby, "-e", program]
    said, status = Open3.capture2e(bare_env.merge(env), *command, rlimit_fsize: bytes, rlimit_core: 0)
    [said.gsub(/process \d+/, "process"), status]
  end

  too_large = "memintro: no report of process: File too large\n"
  { text: 100, json: 1_000, html: 4_096 }.each do |format, bytes|
    it "ends as ever where the report in #{format} does not fit, and says so once" do
      said, status = run_limited(bytes, "--report", "report", "--format", format.to_s, "puts 1; exit 7")
      expect([said, status.exitstatus]).to match([/\A#{too_large.chomp}[^\n]*\n1\n|\A1\n#{too_large.chomp}[^\n]*\n/, 7])
      expect(Dir.children(@folder).grep(/partial/)).to eq([])
    end
  end

  it "goes on where reports are written meanwhile" do
    said, status = run_limited(100, "--report", "report", "--every", "0.1", "sleep 0.5; puts :done; exit 7")
    expect([said.lines.sort, status.exitstatus]).to eq([["done\n", too_large], 7])
  end

  { "exit!(3)" => [3, nil], "Process.kill(:TERM, $$); sleep" => [nil, 15] }.each do |program, fate|
    it "leaves no partial raw dump, and ends with its own status: #{program}" do
      _, status = run_limited(64, "--report", "dump", program)
      expect([status.exitstatus, status.termsig]).to eq(fate)
      expect(Dir.children(@folder)).to eq(["dump.memintro-claim"]).or eq([])
    end
  end

  [0, 100].each do |bytes|
    it "goes on where standard error is a file that may have #{bytes} bytes" do
      command = [RbConfig.ruby, Subprocess::EXE, "run", "--", RbConfig.ruby, "-e", "puts 1; exit 7"]
      system(bare_env, *command, rlimit_fsize: bytes, rlimit_core: 0, out: File::NULL, err: "log")
      expect([$?.exitstatus, File.size("log").between?(0, bytes)]).to eq([7, true])
    end
  end

  it "gets clear errors, or no line, from each method that writes a file" do
    program = <<~RUBY
      Process.setrlimit(:CORE, 0)
      Process.setrlimit(:FSIZE, 100)
      Memintro.start
      log = Memintro.log_every(0.01, File.open("log", "a"))
      sleep 0.2
      log.stop
      begin; Memintro.snapshot.save("snapshot"); rescue Memintro::Error => e; puts e.message; end
      exit 7
    RUBY
    said, status = Open3.capture2e(bare_env, RbConfig.ruby, "-I#{Subprocess::LIB}", "-rmemintro", "-e", program)
    expect([said.lines.sort, status.exitstatus])
      .to eq([["memintro: a line is lost, and perhaps others: Errno::EFBIG: File too large\n",
               "snapshot cannot be written: File too large\n"], 7])
    expect(Dir.children(@folder)).to eq(%w[log])
  end
end
