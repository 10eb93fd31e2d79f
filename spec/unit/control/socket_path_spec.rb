# frozen_string_literal: true

require_relative "../../spec_helper"
require "memintro"
require "memintro/control"

RSpec.describe Memintro::Control::SocketPath do
  let(:folder) { Dir.mktmpdir }

  after { FileUtils.rm_rf(folder) }

  it "prefers the folder that was chosen, then the runtime folder, then /tmp" do
    expect(described_class.candidates({ "MEMINTRO_SOCKET_FOLDER" => "/a", "XDG_RUNTIME_DIR" => "/b" }, 7)).to eq(["/a"])
    expect(described_class.candidates({ "XDG_RUNTIME_DIR" => "/b" }, 7))
      .to eq(%w[/b/memintro /run/user/7/memintro /tmp/memintro-7])
    expect(described_class.candidates({ "XDG_RUNTIME_DIR" => "not/absolute" }, 7))
      .to eq(%w[/run/user/7/memintro /tmp/memintro-7])
  end

  it "looks into this user's folders, and into others' only where they were asked for" do
    uid = Process.euid
    File.chmod(0o700, folder)
    env = { "MEMINTRO_SOCKET_FOLDER" => folder }
    found = [described_class::Folder.new(folder, uid)]
    expect(described_class.search(nil, env, uid)).to eq(found)
    expect(described_class.search([uid], env, uid)).to eq(found)
    expect(described_class.search(:all, env, uid)).to eq(found)
    expect(described_class.search([uid + 1], env, uid)).to eq([])
    expect(described_class.search(nil, env, uid + 1)).to eq([])
    File.chmod(0o755, folder)
    expect(described_class.search(:all, env, uid)).to eq([])
  end

  describe "removing a socket" do
    let(:uid) { Process.euid }
    let(:place) { described_class::Folder.new(folder, uid) }

    before { File.chmod(0o700, folder) }

    # A socket that no process listens at.
    def socket(path) = UNIXServer.new(path).close.then { File.lstat(path).ino }

    it "takes that one and no other" do
      inode = socket(File.join(folder, "1.sock"))
      expect(described_class.remove(place, "1.sock", inode + 1)).to be(false)
      expect(described_class.remove(place, "1.sock", inode)).to be(true)
      expect(described_class.remove(place, "1.sock", inode)).to be(false)
      socket(File.join(folder, "2.new"))
      expect(described_class.remove(place, "2.new")).to be(true)
      expect(Dir.children(folder)).to eq([])
    end

    it "leaves alone what is no socket, has another name, or is elsewhere" do
      outside = Dir.mktmpdir
      socket(File.join(outside, "1.sock"))
      inner = File.join(folder, "inner").tap { |path| Dir.mkdir(path, 0o700) }
      File.write(File.join(inner, "1.sock"), "")
      File.symlink(File.join(outside, "1.sock"), File.join(inner, "2.sock"))
      socket(File.join(inner, "web.sock"))
      names = ["1.sock", "2.sock", "web.sock", "../../#{File.basename(outside)}/1.sock", "1.sock\0", ".sock", ""]
      place = described_class::Folder.new(inner, uid)
      expect(names.map { |name| described_class.remove(place, name) }.uniq).to eq([false])
      expect([Dir.children(inner).size, Dir.children(outside)]).to eq([3, ["1.sock"]])
    ensure
      FileUtils.rm_rf(outside)
    end

    it "never goes through a folder that was put in the place of the one that was looked at" do
      victim = Dir.mktmpdir
      File.chmod(0o700, victim)
      inode = socket(File.join(victim, "1.sock"))
      swapped = File.join(folder, "sockets")
      File.symlink(victim, swapped)
      expect(described_class.remove(described_class::Folder.new(swapped, uid), "1.sock", inode)).to be(false)
      expect(described_class.remove(described_class::Folder.new(victim, uid + 1), "1.sock", inode)).to be(false)
      File.chmod(0o770, victim)
      expect(described_class.remove(described_class::Folder.new(victim, uid), "1.sock", inode)).to be(false)
      expect(Dir.children(victim)).to eq(["1.sock"])
    ensure
      FileUtils.rm_rf(victim)
    end

    describe "while another process swaps the folder for a link to somebody else's, all the time" do
      let(:tries) { 3000 }
      let(:swapped) { File.join(folder, "sockets") }
      let(:victim) { File.join(folder, "victim") }
      let(:names) { Array.new(tries) { |i| "#{i + 1}.sock" } }

      before do
        [swapped, victim].each do |path|
          Dir.mkdir(path, 0o700)
          names.each { |name| socket(File.join(path, name)) }
        end
        link, aside = %w[link aside].map { |name| File.join(folder, name) }
        File.symlink(victim, link)
        @swapper = fork do
          renames = [[swapped, aside], [link, swapped], [swapped, link], [aside, swapped]]
          loop { renames.each { |pair| File.rename(*pair) } }
        ensure
          exit!
        end
      end

      after do
        Process.kill(:KILL, @swapper)
        Process.wait(@swapper)
      end

      it "goes through the folder that it has opened, thousands of times" do
        place = described_class::Folder.new(swapped, uid)
        removed = attempts = 0
        # How often each of both is met, the kernel decides.
        deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 60
        names.cycle do |name|
          removed += 1 if described_class.remove(place, name)
          break if (attempts += 1) >= tries && removed.positive?
          break if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
        end
        expect(Dir.children(victim).size).to eq(tries)
        expect([attempts, removed]).to match([be >= tries, be_between(1, tries)])
      end

      it "would be led there if it went by the path twice" do
        # As long as it takes: the other process has to have its turn between the two steps.
        deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 60
        names.cycle do |name|
          break if Dir.children(victim).size < tries || Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline

          File.unlink(File.join(swapped, name)) if File.lstat(swapped).directory?
        rescue SystemCallError
          next
        end
        expect(Dir.children(victim).size).to be < tries
      end
    end
  end

  it "trusts only a folder of this user's own that no other user may enter" do
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
