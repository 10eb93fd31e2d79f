# frozen_string_literal: true

require_relative "../spec_helper"
require "memintro"
require "memintro/support/advice"

RSpec.describe Memintro::Advice do
  it "names methods, and in a block for the command commands, in that thread alone" do
    expect(described_class.pick("Memintro.trim", "memintro trim PID")).to eq("Memintro.trim")
    said = described_class.naming_commands do
      inner = Enumerator.new { |one| one << described_class.pick("a", "b") }.next
      [inner, described_class.naming_commands { described_class.pick("c", "d") }, described_class.pick("a", "b"),
       Thread.new { described_class.pick("a", "b") }.value]
    end
    expect(said).to eq(%w[b d b a])
    expect { described_class.naming_commands { raise "no" } }.to raise_error("no")
    expect(described_class.pick("a", "b")).to eq("a")
  end

  it "decides for the command's whole text: none of its advice names a method" do
    Memintro::Loader.need(:Finding)
    kinds = Memintro::Finding::KINDS.keys + [:anonymous]
    commands = described_class.naming_commands do
      kinds.map { |kind| Memintro::Finding.new(what: "x", kind: kind).advice }
    end
    expect(commands.grep(/Memintro\./)).to eq([])
  end

  it "decides for texts of the extension" do
    smaps = ->(kib) { "1-2 rw-p 0 00:00 0 [stack]\nRss: #{kib} kB\n" }
    Memintro::Loader.need(:Account)
    before, after = [4, 4096].map { |kib| Memintro::Account.of_hash(Memintro::Native.account_of_mappings(smaps[kib])) }
    expect(after.diff(before).verdict.first).to end_with('Next: Memintro.holders("Fiber"), or "Thread".')
    commands = described_class.naming_commands { after.diff(before).verdict.first }
    expect(commands).to end_with("Next: memintro holders PID --class Fiber, or --class Thread.")
  end
end
