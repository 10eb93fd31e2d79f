# frozen_string_literal: true

require_relative "fake_native"

# For specs about Ruby's side only: fixed figures, and no settings from the user's environment.
RSpec.shared_context "with a fake native" do
  let(:native) { FakeNative.new }

  before do
    stub_const("Memintro::Native", native)
    Memintro.instance_variable_set(:@configuration, Memintro::Configuration.new({}))
  end

  after do
    expect(native.depth).to eq(0), "untracked was entered and not left"
    Memintro.instance_variable_set(:@configuration, nil)
  end
end
