# frozen_string_literal: true

# In a memory check with `repeat`, the tests require this file first.
require "minitest"

module Memintro
  module MemCheck
    # Runs each test of Minitest again, after its result is known.
    # @api private
    module RepeatedTest
      # @return [Minitest::Result]
      def run
        result = super
        if result.passed? && defined?(Repetitions)
          Repetitions.wanted&.repeat("#{self.class}##{name}") { self.class.new(name).run }
        end
        result
      end
    end
  end
end

Minitest::Test.send(:prepend, Memintro::MemCheck::RepeatedTest) # rubocop:disable Lint/SendWithMixinArgument
