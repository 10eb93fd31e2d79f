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

  it "leave nothing unless asked" do
    Dir.mktmpdir do |folder|
      _, status = Open3.capture2e(RbConfig.ruby, File.join(root, "exe/memintro"), "run",
                                  "--report", File.join(folder, "%p"), "--", "ls", "/")
      expect(status).to be_success
      expect(Dir.children(folder)).to be_empty
    end
  end
end
