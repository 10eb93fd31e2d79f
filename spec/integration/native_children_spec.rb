# frozen_string_literal: true

require "open3"
require "tmpdir"

# `--native-children`: programs that are not Ruby report for themselves, however they end.
RSpec.describe "Native children" do
  root = File.expand_path("../..", __dir__)

  def dumps(folder)
    require "memintro"
    Dir[File.join(folder, "*")].sort.map { |file| Memintro::Native.read_dump(file) }
  end

  it "leave one dump for each process that ends in the ordinary way" do
    Dir.mktmpdir do |folder|
      command = ["sh", "-c", "ls / >/dev/null; sort /etc/passwd >/dev/null; true"]
      _, status = Open3.capture2e(RbConfig.ruby, File.join(root, "exe/memintro"), "run", "--native-children",
                                  "--report", File.join(folder, "%p"), "--", *command)
      expect(status).to be_success
      found = dumps(folder)
      expect(found.size).to eq(3)
      expect(found.map { |dump| dump[:totals].first }).to all(be > 1_000)
      expect(found.flat_map { |dump| dump[:sites].map { |site| site[1] } }.uniq).to eq([:native])
    end
  end

  it "are said to have ended in no special way where they did not, and are not told to start tracking" do
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

  it "leave nothing unless asked" do
    Dir.mktmpdir do |folder|
      _, status = Open3.capture2e(RbConfig.ruby, File.join(root, "exe/memintro"), "run",
                                  "--report", File.join(folder, "%p"), "--", "ls", "/")
      expect(status).to be_success
      expect(Dir.children(folder)).to be_empty
    end
  end
end
