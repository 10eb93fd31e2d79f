# frozen_string_literal: true

require "spec_helper"
require "fileutils"
require "tmpdir"
require "memintro/support/user_files"

RSpec.describe Memintro::UserFiles do
  let(:folder) { Dir.mktmpdir("memintro-user-files") }
  let(:path) { File.join(folder, "baseline.json") }

  after { FileUtils.rm_rf(folder) }

  def mode(file) = format("%o", File.stat(file).mode & 0o7777)

  def refusal(path)
    described_class.save(path, "new")
  rescue Memintro::Error => e
    e.message
  end

  it "writes a new file with the rights of the umask, in folders that it makes" do
    path = File.join(folder, "a", "b", "out.xml")
    described_class.save(path, "whole \xff".b)
    expect([File.binread(path), mode(path), Dir.children(File.dirname(path))])
      .to eq(["whole \xff".b, format("%o", 0o666 & ~File.umask), ["out.xml"]])
  end

  it "keeps the rights and the owner of a file that is there" do
    File.write(path, "before")
    File.chmod(0o640, path)
    File.chown(65_534, 65_533, path) if Process.euid.zero?
    before = File.stat(path)
    described_class.save(path, "after")
    now = File.stat(path)
    expect([File.read(path), mode(path), now.uid, now.gid]).to eq(["after", "640", before.uid, before.gid])
  end

  it "writes where links lead, and leaves the links" do
    FileUtils.mkdir(File.join(folder, "real"))
    File.symlink("real/one", File.join(folder, "two"))
    File.symlink(File.join(folder, "two"), path)
    2.times do |round|
      described_class.save(path, "round #{round}")
      expect([File.read(File.join(folder, "real", "one")), File.symlink?(path)]).to eq(["round #{round}", true])
    end
    expect(Dir.glob("**/*", base: folder)).to contain_exactly("baseline.json", "real", "real/one", "two")
  end

  it "refuses in words what is no file, a circle of links, and a folder that is none" do
    File.symlink("circle", File.join(folder, "circle"))
    File.mkfifo(File.join(folder, "pipe"))
    expect(refusal(folder)).to eq("#{folder} cannot be written: it is no file, but a folder")
    expect(refusal("/dev/null")).to eq("/dev/null cannot be written: it is no file, but a device")
    expect(refusal(File.join(folder, "pipe"))).to end_with("it is no file, but a pipe")
    expect(refusal(File.join(folder, "circle"))).to end_with("cannot be written: Too many levels of symbolic links")
    expect(refusal("/proc/self/status/x")).to eq("/proc/self/status/x cannot be written: Not a directory")
  end

  it "leaves what was there, and nothing beside, where the file does not fit" do
    File.write(path, "before")
    program = <<~RUBY
      Process.setrlimit(:FSIZE, 4_096)
      begin
        Memintro::UserFiles.save(ARGV.first, "x" * 100_000)
      rescue Memintro::Error => e
        puts e.message
      end
    RUBY
    ruby = [RbConfig.ruby, "-I#{Subprocess::LIB}", "-rmemintro/support/user_files"]
    told = IO.popen([*ruby, "-e", program, path], &:read)
    expect([told, File.read(path), Dir.children(folder)])
      .to eq(["#{path} cannot be written: File too large\n", "before", ["baseline.json"]])
  end
end
