# frozen_string_literal: true

# Assertions for the memory of a block: see Memintro::MinitestAssertions and docs/testing.md.
#
#     require "memintro/minitest"   # in test_helper.rb
#
#     def test_does_not_leak
#       assert_no_leaks { parse(document) }
#     end
require_relative "../memintro"
require "minitest/spec"
require_relative "integrations/minitest_assertions"

Minitest::Assertions.send(:include, Memintro::MinitestAssertions) # rubocop:disable Lint/SendWithMixinArgument

{ assert_no_leaks: :wont_leak_memory, assert_allocates_at_most: :must_allocate_at_most,
  assert_retains_at_most: :must_retain_at_most, refute_retains: :wont_retain }.each do |assertion, expectation|
  Minitest::Expectations.infect_an_assertion(assertion, expectation, :block)
end
