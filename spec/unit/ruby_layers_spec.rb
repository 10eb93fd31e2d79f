# frozen_string_literal: true

require "fileutils"
require "tmpdir"
require_relative "../spec_helper"
require_relative "../../rakelib/lint/ruby_layers"

# `rake lint:ruby_layers` finds what points upwards.
RSpec.describe RubyLayers do
  # A copy of lib/ with this text at the end of that file, and what is wrong with it then.
  def wrong_with(file, text)
    Dir.mktmpdir do |folder|
      FileUtils.cp_r(Subprocess::LIB, folder)
      path = File.join(folder, "lib/memintro", file)
      lines = File.exist?(path) ? File.readlines(path).size : 0
      File.write(path, text, mode: "a")
      described_class.new(File.join(folder, "lib")).wrong.map { |line| line.sub(":#{lines + 1}:", ":LAST:") }
    end
  end

  it "finds nothing wrong" do
    expect(described_class.new(Subprocess::LIB).wrong).to eq([])
  end

  it "refuses a require of a folder that is above" do
    expect(wrong_with("support/units.rb", "require_relative \"../report/report\"\n"))
      .to eq(["lib/memintro/support/units.rb:LAST: support requires ../report/report, which is report's"])
  end

  it "refuses a require of a folder beside" do
    expect(wrong_with("heap/iseq.rb", "require_relative \"../malloc/totals\"\n"))
      .to eq(["lib/memintro/heap/iseq.rb:LAST: heap requires ../malloc/totals, which is malloc's"])
  end

  it "refuses a constant from above, as Ruby would look it up" do
    expect(wrong_with("malloc/totals.rb", "module Memintro; class Totals; X = Report::FORMATS; end; end\n"))
      .to eq(["lib/memintro/malloc/totals.rb:LAST: malloc names Report::FORMATS, which is report's"])
  end

  it "does not take a constant for another one of the same name" do
    expect(wrong_with("malloc/totals.rb", "module Memintro; class Doctor; X = Text; end; end\n")).to eq([])
  end

  it "refuses the extension in the command" do
    expect(wrong_with("cli/commands/top.rb", "module Memintro; module CLI; X = Native.pid; end; end\n"))
      .to eq(["lib/memintro/cli/commands/top.rb:LAST: cli names Native, which is not the command's"])
  end

  it "refuses a file in no folder that is one too many, and a folder in no layer" do
    expect(wrong_with("another.rb", "# nothing\n").join)
      .to match(%r{lib/memintro/another.rb: its folder is in no layer19 files in lib/memintro itself, at most 18 may})
    expect(wrong_with("../memintro/rack.rb", "require_relative \"cli\"\n"))
      .to eq(["lib/memintro/rack.rb:LAST: integrations requires cli, which is cli's"])
  end
end
