# frozen_string_literal: true

require_relative "../../spec_helper"
require_relative "../../../rakelib/protocol/page"

# `rake protocol` writes the tables from the definitions of the commands.
RSpec.describe ProtocolPage do
  it "is up to date" do
    expect(described_class.new).not_to be_stale
  end

  it "names commands that the process has, and no other" do
    commands = Memintro::Control::Commands
    expect(commands.private_instance_methods(false).map(&:name)).to include(*commands::NAMES)
    expect(commands::BRIEF).to eq(%w[info start stop mark clear gc trim])
  end
end
