# frozen_string_literal: true

require "spec_helper"
require "fileutils"
require "tmpdir"
require "memintro/support/files"

RSpec.describe Memintro::Files do
  let(:folder) { Dir.mktmpdir("memintro-files") }

  after { FileUtils.rm_rf(folder) }

  it "writes under a name that cannot be guessed, and is short beside a long one" do
    long = File.join(folder, "r" * 255)
    names = Array.new(100) { described_class.beside(long) }
    expect(names.uniq.size).to eq(100)
    expect(names.map { |name| [File.dirname(name), File.basename(name).sub(/\h{16}/, "X")] }.uniq)
      .to eq([[folder, "memintro-X.partial"]])
    described_class.replace(long) { |file| file.write("whole") }
    expect([Dir.children(folder), File.read(long), File.stat(long).mode & 0o777]).to eq([["r" * 255], "whole", 0o600])
  end

  it "leaves nothing beside, and what was there as it was, when writing fails" do
    path = File.join(folder, "r").tap { |file| File.write(file, "before") }
    expect { described_class.replace(path) { |file| file.write("half") && raise("no") } }.to raise_error("no")
    expect([Dir.children(folder), File.read(path)]).to eq([["r"], "before"])
  end
end
