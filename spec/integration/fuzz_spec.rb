# frozen_string_literal: true

require_relative "../spec_helper"
require "memintro"

# A short run of each of Ruby's fuzzers, always with the same inputs; `rake fuzz[requests,3600]` is a long one.
RSpec.describe "Readers of untrusted input" do
  %w[requests replies snapshots].each do |name|
    it "answer any input, or refuse it in memintro's own words: #{name}" do
      require_relative "../fuzz/#{name}"
      target = Fuzz.const_get(name.capitalize).new(20_260)
      left = 1_500
      target.run { (left -= 1) >= 0 }
      expect([target.to_s, target.failures.size]).to match([start_with("#{name}: 1500 inputs"), 0])
      # Many were understood, and many were not.
      expect(target.outcomes.values.max(2)).to all(be > 100)
    end
  end
end
