# frozen_string_literal: true

# In a memory check with `repeat`, the specs require this file first.
require "rspec/core"

module Memintro
  module MemCheck
    # Runs each example of RSpec again, after its result is known.
    # @api private
    module RepeatedExample
      # @return [Boolean]
      def run(instance, reporter)
        passed = super
        return passed unless passed && reporter != ::RSpec::Core::NullReporter && defined?(Repetitions)

        Repetitions.wanted&.repeat(full_description) do
          duplicate_with.run(example_group.new, ::RSpec::Core::NullReporter)
        end
        passed
      end
    end
  end
end

RSpec::Core::Example.send(:prepend, Memintro::MemCheck::RepeatedExample) # rubocop:disable Lint/SendWithMixinArgument
