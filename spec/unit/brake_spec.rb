# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../../lib/memintro/support/brake"

RSpec.describe "Memintro::Brake" do
  brake = Memintro::Brake

  it "is on for any value of the variable, except the few that mean no" do
    on = ["1", "true", "TRUE", "yes", "on", "2", " 1 ", "y", "disabled", "nö", "\xFF", "\xFF".b]
    off = [nil, "", " ", "0", " 0\n", "false", "False", "no", "NO", "off", "Off"]
    expect(on.reject { |value| brake.on?("MEMINTRO_DISABLE" => value) }).to eq([])
    expect(off.select { |value| brake.on?("MEMINTRO_DISABLE" => value) }).to eq([])
  end

  it "names its cause in one line, for any value of the variable" do
    { "1" => "1", "a\nb\e[31m" => "a\\nb\\e[31m" }.each do |value, shown|
      stub_const("ENV", { "MEMINTRO_DISABLE" => value })
      expect(brake.cause).to eq("MEMINTRO_DISABLE=#{shown} is set")
    end
  end
end
