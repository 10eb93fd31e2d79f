# frozen_string_literal: true

require_relative "../spec_helper"

# Each run is a real Minitest in a process of its own, on the tests of spec/fixtures/tests/memory_test.rb.
RSpec.describe "require \"memintro/minitest\"" do
  has_minitest = !Gem::Specification.find_all_by_name("minitest").empty?

  before { skip "no minitest here" unless has_minitest }

  # By the name of each test: `.`, `F`, `E` or `S`.
  def marks(text) = text.scan(/^(?:\w+#)?\w*?((?:test_)(?:\d+_)?[\w ]+?) = [\d.]+ s = (.)$/).to_h

  it "passes and fails as it should" do
    text, status = minitest_run("memory_test.rb")
    found = marks(text)
    expected = found.keys.to_h do |name|
      [name, name.include?("passes") ? "." : name.match?(/no_block|option|raises/) ? "E" : "F"]
    end
    expect([found, found.size]).to eq([expected, 20])
    expect(status.exitstatus).to eq(1)
    expect(text).to match(/^20 runs, 17 assertions, 7 failures, 3 errors, 0 skips$/)
    expect(text).to match(/^the block leaked 64 bytes an iteration: 12,800 bytes over 200 iterations, at .*\.rb:22$/)
    expect(text).to match(/^while archiving\nthe block leaked [\d,.]+ bytes an iteration/)
    # A block that makes nothing may still be the one in which Ruby first fills a cache.
    once = /[\d,]+ bytes over \d+ iterations, which do not grow with the iterations/
    expect(text).to match(/expected the block to leak memory, but it left (nothing over \d+ iterations|#{once})/)
    expect(text).to include("ArgumentError: assert_no_leaks needs a block: assert_no_leaks { … }",
                            "warm_up is -1; it must be an Integer from 0 to 1000000", "IOError: the block's own")
    expect(text).to match(/^the block retained 1 Message an iteration, at .*memory_test\.rb/)
    expect(text).to match(/^held by:\n.*TestMemory#@one/)
  end

  it "skips under MEMINTRO_DISABLE, and says why" do
    text, status = minitest_run("memory_test.rb", "--name", "test_fails_native", env: { "MEMINTRO_DISABLE" => "1" })
    expect(marks(text)).to eq("test_fails_native" => "S")
    expect(text).to include("MEMINTRO_DISABLE=1 is set, so memory is not measured")
    expect(status.exitstatus).to eq(0)
  end
end
