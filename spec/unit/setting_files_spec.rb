# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../../rakelib/settings/files"

# `rake settings` writes what other files need of the list of settings.
RSpec.describe SettingFiles do
  it "are up to date" do
    expect(described_class.new.stale).to eq([])
  end
end
