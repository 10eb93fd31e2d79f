# frozen_string_literal: true

require_relative "../../spec_helper"
require "memintro"
require "memintro/control"
require "memintro/control/diagnosis"

RSpec.describe Memintro::Control::Diagnosis do
  # The message about a process whose threads have these states.
  def silent(*states)
    allow(described_class).to receive(:thread_states).and_return(states)
    described_class.silent(Process.pid, 2)
  end

  it "tells why a process is silent from the states of its threads" do
    expect(silent("S", "S", "T")).to match(/it is stopped .*kill -CONT #{Process.pid}/)
    expect(silent("S", "R")).to match(/C code in one of its threads computes while it holds Ruby's lock \(GVL\)/)
    expect(silent("S", "S")).to match(/waits for something while it holds Ruby's lock/)
    expect(silent("S", "D")).to match(/state D/)
    expect(silent("Z"))
      .to match(/process #{Process.pid} is a zombie: it has ended, and its parent has not waited for it/)
  end

  it "knows this process" do
    expect(described_class.parent(Process.pid)).to eq(Process.ppid)
    expect(described_class.owner(Process.pid)).to eq(Process.euid)
    expect(described_class.rss_bytes(Process.pid)).to be > 1_000_000
    expect(described_class.owner(2**30)).to be_nil
  end
end
