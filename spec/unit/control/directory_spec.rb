# frozen_string_literal: true

require_relative "../../spec_helper"
require "memintro"
require "memintro/control"
require "memintro/control/directory"

RSpec.describe Memintro::Control::Directory do
  # Process ids and names of those that listen; who is whose parent, down to the first process of a container.
  def directory(names, parents)
    listeners = names.map do |pid, name|
      described_class::Listener.new(pid: pid, path: "/#{pid}.sock", info: { "name" => name, "program" => "x" })
    end
    allow(Memintro::Control::Diagnosis).to receive(:parent) { |pid| parents.fetch(pid, 0) }
    allow(Memintro::Control::SocketPath).to receive(:of_process).and_return([])
    described_class.new.tap { |found| allow(found).to receive(:all).and_return(listeners) }
  end

  def pids(found) = found.map(&:pid)

  let(:web) { directory({ 5 => "web", 8 => "web", 9 => "web", 20 => "web", 21 => "job" }, parents) }
  let(:parents) { { 1 => 0, 8 => 7, 9 => 5, 5 => 1, 7 => 1, 20 => 9, 21 => 8 } }

  it "means a process and all below it, with silent ones in between or above" do
    expect(pids(web.families("5"))).to eq([5, 9, 20])
    expect(pids(web.families("7"))).to eq([8, 21])
    expect(pids(web.families("20"))).to eq([20])
  end

  it "means all who have a name, and what is below them, each once" do
    expect(pids(web.families("web"))).to eq([5, 9, 20, 8, 21])
    expect(pids(web.families("job"))).to eq([21])
    expect { web.families("shop") }.to raise_error(Memintro::ControlError, /no process that listens is called "shop"/)
  end

  it "knows a container's first process for a master" do
    expect(pids(web.families("1"))).to eq([5, 8, 9, 20, 21])
    master = directory({ 1 => "web", 8 => "web", 9 => "web" }, { 1 => 0, 8 => 1, 9 => 1 })
    expect(pids(master.families("1"))).to eq([1, 8, 9])
    expect(pids(master.families("web"))).to eq([1, 8, 9])
  end
end
