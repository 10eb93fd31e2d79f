# frozen_string_literal: true

require_relative "../../spec_helper"
require "memintro"
require "memintro/control"

RSpec.describe Memintro::Control::Place do
  let(:folder) { Dir.mktmpdir }

  after { FileUtils.rm_rf(folder) }

  it "prefers the folder that was chosen, then the runtime folder, then /tmp" do
    expect(described_class.candidates({ "MEMINTRO_SOCKET_FOLDER" => "/a", "XDG_RUNTIME_DIR" => "/b" }, 7)).to eq(["/a"])
    expect(described_class.candidates({ "XDG_RUNTIME_DIR" => "/b" }, 7))
      .to eq(%w[/b/memintro /run/user/7/memintro /tmp/memintro-7])
    expect(described_class.candidates({ "XDG_RUNTIME_DIR" => "not/absolute" }, 7))
      .to eq(%w[/run/user/7/memintro /tmp/memintro-7])
  end

  it "trusts only a folder of this user's own that nobody else may enter" do
    uid = Process.euid
    expect(described_class.insecurity(folder, uid)).to be_nil
    expect(described_class.insecurity(folder, uid + 1)).to eq("#{folder} belongs to user #{uid}")
    link = File.join(folder, "link")
    File.symlink(folder, link)
    expect(described_class.insecurity(link, uid)).to eq("#{link} is a symbolic link")
    file = File.join(folder, "file")
    File.write(file, "")
    expect(described_class.insecurity(file, uid)).to eq("#{file} is no folder")
    File.chmod(0o750, folder)
    expect(described_class.insecurity(folder, uid)).to eq("#{folder} is open to others (chmod 700 #{folder})")
  end
end
