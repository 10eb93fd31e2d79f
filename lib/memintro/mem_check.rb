# frozen_string_literal: true

# Rake tasks that run a gem's tests and report what its C code leaks: see docs/mem_check.md.
#
#     # Rakefile
#     require "memintro/mem_check"
#     Memintro::MemCheck.configure { |config| config.binary_name = "mygem" }
#     Memintro::MemCheck::TestTask.new(mem_check: :compile) { |t| t.libs << "test" }
require_relative "../memintro"
require_relative "mem_check/configuration"
require_relative "mem_check/check"

module Memintro
  # Checks of native gems in their tests. `require "memintro/mem_check"` loads it, in a Rakefile. docs/mem_check.md is
  # about it.
  module MemCheck
    autoload :TestTask, File.expand_path("mem_check/test_task.rb", __dir__)

    # The task for RSpec. It is loaded only with RSpec.
    module RSpec
      autoload :RakeTask, File.expand_path("mem_check/rspec_task.rb", __dir__)
    end

    class << self
      # Sets the defaults of all tasks that are defined later.
      #
      # @yieldparam config [Configuration]
      # @return [Configuration]
      # @example
      #   Memintro::MemCheck.configure do |config|
      #     config.binary_name = "mygem"
      #     config.suppressions = ["test/mem_check.supp"]
      #   end
      def configure
        @configuration ||= Configuration.new
        yield @configuration if block_given?
        @configuration
      end

      # @return [Configuration] the present defaults
      def configuration
        configure
      end

      # The same as {configure}, in one call.
      #
      # @param options [Hash{Symbol => Object}] settings of {Configuration}
      # @return [Configuration]
      # @raise [ArgumentError] on an unknown setting or a wrong value
      # @example
      #   Memintro::MemCheck.config(binary_name: "mygem", junit: "tmp/mem_check.xml")
      def config(**options)
        configure { |config| config.set(options) }
      end
    end
  end
end
