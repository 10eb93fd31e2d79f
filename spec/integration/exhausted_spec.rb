# frozen_string_literal: true

require "spec_helper"

# The kernel refuses memory. The program must not notice, and the figures must say what they lack.
RSpec.describe "A kernel that gives no memory" do
  # The table is reserved as a part of the address space that there may be: at a start, and when preloaded at once. Ruby
  # 3.3 itself takes 470 MB of it where it is not limited, and 75 where it is.
  def exhausted(*arguments, **options)
    limit = [400 << 20, Process.getrlimit(:AS).last]
    run_ruby("exhausted.rb", *arguments, rlimit_as: limit, **options).must_succeed.json.fetch(:result)
  end

  TruthDriver::WAYS.each do |way|
    it "degrades tracking that goes on, which counts what it drops and says so, #{way}" do
      figures = exhausted("tracking", way: way, env: { "MEMINTRO_RECORDS" => "table" })
      expect(figures).to include(refused: true, distinct: 800_000, works: 10)
      expect(figures[:dropped]).to be_between(100_000, 799_000)
      # Other allocations of the fixture may also have been dropped, or be at the same line.
      expect(figures[:live] + figures[:dropped]).to be_within(100).of(800_000)
      expect(figures[:left]).to match([be_between(0, 100), be_between(0, 100_000)])
      expect(figures[:said]).to match(/^note: \d{3},\d{3} allocations could not be followed: .*memory.* ran out/)
      expect(figures[:notes]).to include(match(/\A\d{3},\d{3} allocations could not be followed/))
    end
  end

  it "makes a start raise that it is exhausted, from too little for the table to too little for the slots" do
    results = exhausted("start", *(1..40).map { |i| i * 0.5 })
    expect(results.uniq).to eq(["Memintro::ExhaustedError", "tracks"])
    expect(results.count("Memintro::ExhaustedError")).to be_between(2, 39)
    expect(results).to eq(results.sort_by { |result| result == "tracks" ? 1 : 0 })
  end
end
