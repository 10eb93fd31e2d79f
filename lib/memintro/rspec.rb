# frozen_string_literal: true

# Matchers for the memory of a block: see Memintro::RSpecMatchers and docs/testing.md.
#
#     require "memintro/rspec"   # in spec_helper.rb
#
#     it "does not leak" do
#       expect { parse(document) }.not_to leak_memory
#     end
require_relative "../memintro"
require_relative "integrations/rspec_matchers"

RSpec::Matchers.send(:include, Memintro::RSpecMatchers) # rubocop:disable Lint/SendWithMixinArgument
