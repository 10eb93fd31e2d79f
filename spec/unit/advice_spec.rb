# frozen_string_literal: true

require_relative "../spec_helper"
require "memintro"
require "memintro/support/advice"

RSpec.describe Memintro::Advice do
  it "names methods, and in a block for the command commands, in that thread alone" do
    expect(described_class.pick("Memintro.trim", "memintro trim PID")).to eq("Memintro.trim")
    said = described_class.naming_commands do
      inner = Enumerator.new { |one| one << described_class.holders("Net::HTTP", 47) }.next
      [inner, described_class.naming_commands { described_class.holders("(hidden T_ARRAY)") },
       described_class.pick("a", "b"), Thread.new { described_class.pick("a", "b") }.value]
    end
    expect(said).to eq(["memintro holders 47 --class Net::HTTP", 'memintro holders PID --class "(hidden T_ARRAY)"',
                        "b", "a"])
    expect { described_class.naming_commands { raise "no" } }.to raise_error("no")
    expect(described_class.holders("Net::HTTP", 47)).to eq('Memintro.holders("Net::HTTP")')
  end

  it "decides for the command's whole text: none of its advice names a method" do
    Memintro::Loader.need(:Account, :Finding)
    rows = Memintro::Account::Verdict::NEXT.keys
    commands = described_class.naming_commands do
      rows.map { |name| Memintro::Account::Verdict.grown(name, 1 << 20) } +
        (Memintro::Finding::KINDS.keys + [:anonymous]).map { |kind|
          Memintro::Finding.new(what: "x", kind: kind).advice
        }
    end
    expect(commands.grep(/Memintro\./)).to eq([])
    methods = rows.map { |name| Memintro::Account::Verdict.grown(name, 1 << 20) }
    expect(methods.grep(/memintro \w+ PID/)).to eq([])
  end
end
