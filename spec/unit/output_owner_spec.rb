# frozen_string_literal: true

require "spec_helper"
require "fileutils"
require "tmpdir"
require "memintro/support/output_owner"
require "support/with_fake_native"

# The decision for each policy, by process ids alone; run_reports_spec and look_spec have real processes.
RSpec.describe "Memintro::OutputOwner" do
  include_context "with a fake native"

  owner_class = Memintro::OutputOwner
  variables = owner_class::VARIABLES
  let(:folder) { Dir.mktmpdir("memintro-owner") }
  let(:path) { File.join(folder, "r") }
  let(:claim) { "#{path}.memintro-claim" }
  let(:pid) { Process.pid }
  # No process can have it.
  let(:gone) { 2**22 + 1 }

  around do |example|
    kept = [*variables.values, owner_class::SINCE].to_h { |name| [name, ENV.delete(name)] }
    example.run
    ENV.update(kept)
    FileUtils.rm_rf(folder)
  end

  # A new owner as another process would make it.
  def owner_in(process, policy, name: path)
    allow(native).to receive(:kernel_pid).and_return(process)
    Memintro::OutputOwner.new(name, policy)
  end

  def claimed_by = File.readlink(claim)[/\d+\z/].to_i

  describe "first_free" do
    it "gives FILE to the first process, until that has ended" do
      expect(owner_in(gone, :first_free).file).to eq(path)
      expect(claimed_by).to eq(gone)
      expect(owner_in(pid, :first_free).file).to eq(path)
      expect(claimed_by).to eq(pid)
      expect(owner_in(gone, :first_free).file).to eq("#{path}.#{gone}")
    end

    it "gives an earlier run's FILE away and leaves it there, but none of this run" do
      File.write(path, "earlier")
      File.utime(0, 0, path)
      expect([owner_in(pid, :first_free).owner?, File.read(path)]).to eq([true, "earlier"])
      File.unlink(claim)
      FileUtils.touch(path, mtime: Time.now + 60)
      expect(owner_in(gone, :first_free).owner?).to be(false)
    end

    it "keeps FILE through exec, and for that FILE only" do
      owner_in(pid, :first_free).file
      FileUtils.touch(path, mtime: Time.now + 60)
      expect(owner_in(pid, :first_free).owner?).to be(true)
      other = File.join(folder, "other")
      FileUtils.touch(other, mtime: Time.now + 60)
      expect(owner_in(pid, :first_free, name: other).owner?).to be(false)
    end

    it "gives a forked child FILE.PID, and a daemon FILE" do
      owner = owner_in(pid, :first_free)
      owner.file
      owner.heir = true
      allow(native).to receive(:kernel_pid).and_return(gone)
      owner.renew
      owner.heir = false
      expect([owner.file, claimed_by]).to eq([path, gone])
      FileUtils.touch(path, mtime: Time.now + 60)
      allow(native).to receive(:kernel_pid).and_return(pid)
      expect(owner.file).to eq("#{path}.#{pid}")
    end

    it "removes its own claim alone" do
      mine = owner_in(pid, :first_free)
      mine.file
      owner_in(gone, :first_free).release
      expect(File.symlink?(claim)).to be(true)
      allow(native).to receive(:kernel_pid).and_return(pid)
      mine.release
      expect(Dir.children(folder)).to eq([])
    end

    it "gives a name of the greatest length to its process, without a claim" do
      long = File.join(folder, "r" * 255)
      expect([owner_in(pid, :first_free, name: long).file, Dir.children(folder)]).to eq([long, []])
    end
  end

  describe "appointed" do
    it "gives FILE to the process that the variable names, whether the others live or not, and makes no claim" do
      ENV[variables[:appointed]] = gone.to_s
      expect(owner_in(pid, :appointed).file).to eq("#{path}.#{pid}")
      expect(owner_in(gone, :appointed).file("#{path}.2")).to eq("#{path}.2")
      expect(Dir.children(folder)).to eq([])
    end

    it "gives FILE to the first that asks, where none was named, and keeps it without the variable" do
      owner = owner_in(pid, :appointed)
      expect(ENV.delete(variables[:appointed])).to eq(pid.to_s)
      File.write(path, "this run's")
      expect(owner.file).to eq(path)
      allow(native).to receive(:kernel_pid).and_return(gone)
      expect(owner.file).to eq("#{path}.#{gone}")
    end
  end

  variables.each_key do |policy|
    it "gives each process its own file by %p, with the policy #{policy}" do
      expect(owner_in(gone, policy, name: "#{path}.%p").file).to eq("#{path}.#{gone}")
      expect([Dir.children(folder), ENV.key?(owner_class::SINCE)]).to eq([[], false])
    end
  end
end
