# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/listening"

# A look at a process that works meets garbage that was made since the collection with which the look began.
RSpec.describe "a diff of a busy process", :listening do
  it "counts what outlived a collection, and nothing that was made since" do
    program = start_program(<<~RUBY)
      Junk, Kept, KEPT = Class.new, Class.new, []
      # No collection but those of the looks.
      GC.disable
      Memintro.listen
      Thread.new do
        loop do
          5_000.times { |i| Junk.new; KEPT << Kept.new if (i % 10).zero? }
          50.times { eval("proc {}", nil, "junk.rb") }
          sleep(0.001)
        end
      end
      puts "ready"
      $stdin.read
      sleep
    RUBY
    diff = JSON.parse(memintro("diff", program.pid, "--for", "1", "--json").must_succeed.stdout)
    rows = %w[classes iseqs].to_h { |list| [list, diff["sections"][list].to_h { |row| [row["name"], row] }] }
    kept = rows["classes"]["Kept"]
    expect(kept).to include("growth" => kept["count_growth"] * 40, "count_growth" => be > 5_000)
    junk = [rows["classes"]["Junk"], *rows["iseqs"].filter_map { |name, row| row if name.include?("junk.rb") }]
    expect(junk.flat_map { |row| row.to_h.values_at("count_before", "count_after").map(&:to_i) }).to all(be < 100)
    types = diff["sections"]["types"].find { |row| row["name"] == "T_OBJECT" }
    expect(types["growth"]).to be_within(1_000).of(kept["count_growth"])
  end
end
