# frozen_string_literal: true

require "spec_helper"
require "open3"
require "tmpdir"

# `--native-children`: programs that are not Ruby report for themselves, however they end.
RSpec.describe "Native children" do
  root = File.expand_path("../..", __dir__)

  def dumps(folder)
    require "memintro"
    Dir[File.join(folder, "*")].sort.map { |file| Memintro::Native::Report.read(File.binread(file)) }
  end

  it "leave one dump for each process that ends in the ordinary way" do
    Dir.mktmpdir do |folder|
      command = ["sh", "-c", "ls / >/dev/null; sort /etc/passwd >/dev/null; true"]
      _, status = Open3.capture2e(RbConfig.ruby, File.join(root, "exe/memintro"), "run", "--native-children",
                                  "--report", File.join(folder, "%p"), "--", *command)
      expect(status).to be_success
      found = dumps(folder)
      expect(found.size).to eq(3)
      expect(found.map { |dump| dump.totals.first }).to all(be > 1_000)
      expect(found.flat_map { |dump| dump.rows.map { |site| site[1] } }.uniq).to eq([:native])
    end
  end

  it "end with a plain report if nothing special happened, without advice to start tracking" do
    Dir.mktmpdir do |folder|
      programs = ["exec sort /etc/passwd >/dev/null", "exec #{NativePrograms.program('silent.c')}"]
      programs.each do |command|
        run_memintro("run", "--native-children", "--report", File.join(folder, "%p"), "--", "sh", "-c", command)
          .must_succeed
      end
      texts = Dir[File.join(folder, "*")].map { |file| run_memintro("report", file).must_succeed.stdout }
      expect(texts.map { |text| text.lines.first }).to match([/\Amemintro [^,]*: pid \d+, 20\d\d-[^,]*\n\z/] * 2)
      expect(texts.join).not_to include("Memintro.start")
      expect(texts.grep(/^Nothing has been allocated in this process\.$/).size).to eq(1)
    end
  end

  { "return" => [0, nil], "_exit" => [3, 3] }.each do |ending, (status, told)|
    it "report for themselves at their own end by #{ending}, not at that of a vfork's child in their memory" do
      Dir.mktmpdir do |folder|
        result = run_memintro("run", "--native-children", "--report", File.join(folder, "%p"), "--",
                              NativePrograms.program("processes.c"), "vforks_before_the_report", ending)
        expect([result.stderr, result.status.exitstatus, result.json[:right]]).to eq(["", status, 10])
        expect(Dir.children(folder)).to eq([result.json[:pid].to_s])
        dump = dumps(folder).first
        expect(dump.process.values_at(:pid, :signal, :exit_status)).to eq([result.json[:pid], 0, told])
        own = dump.rows.select { |site| site[2].start_with?("processes-") }
        # All of them: what came before the children, between them and after them.
        expect(own.map { |site| site[4, 4] }).to eq([[100, 40, 300_000, 120_000]])
      end
    end
  end

  it "leave nothing unless asked" do
    Dir.mktmpdir do |folder|
      _, status = Open3.capture2e(RbConfig.ruby, File.join(root, "exe/memintro"), "run",
                                  "--report", File.join(folder, "%p"), "--", "ls", "/")
      expect(status).to be_success
      expect(Dir.children(folder)).to be_empty
    end
  end
end
