# frozen_string_literal: true

require_relative "../spec_helper"

# Odd code and classes of programs, for which lines, stacks and objects must still be right.
RSpec.describe "odd code" do
  def answer(code)
    JSON.parse(run_ruby(code: code, requires: %w[memintro json fiddle]).must_succeed.stdout, symbolize_names: true)
  end

  # Code that ends while the collector marks is freed in the same collection. Here its path changes in place instead of
  # the code at its address.
  [1, 16].each do |depth|
    it "is asked for anew when the collector has marked, in call sites of #{depth} lines" do
      found = answer("DEPTH = #{depth}; " + read_program("odd_code/changed_path.rb"))
      (first, count), (second, same), (last, still) = found[:seen]
      expect([first, second, same, still]).to eq(["marking", "marking", count, count])
      expect(last).not_to eq("marking")
      # The second one is from the cache, which shows that the third one is not.
      expect(found[:sites]).to eq(a: 2, b: 1)
    end
  end

  it "may have classes that raise in every method" do
    found = answer(read_program("odd_code/raising_classes.rb"))
    expect(found[:count]).to eq(150)
    expect(found[:refused]).to end_with("an object of Bare is neither")
  end
end
