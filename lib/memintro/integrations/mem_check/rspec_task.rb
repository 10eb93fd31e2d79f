# frozen_string_literal: true

require "rspec/core/rake_task"
require "shellwords"
require_relative "../../mem_check"

module Memintro
  module MemCheck
    module RSpec
      # A Rake task that runs specs as `RSpec::Core::RakeTask` does, with its options, and checks what the gem's C code
      # leaks.
      #
      # @example In a Rakefile
      #   Memintro::MemCheck::RSpec::RakeTask.new(mem_check: :compile)
      class RakeTask < ::RSpec::Core::RakeTask
        # What the specs require first if they are repeated.
        REPEAT = File.expand_path("repeat_rspec.rb", __dir__).freeze
        private_constant :REPEAT

        # @param name [Symbol, Hash] name of the task, with what it depends on; `:mem_check` by default
        # @param options [Hash{Symbol => Object}] settings of {Configuration}, for this task alone; any other key is the
        #   task's name
        # @yieldparam task [RakeTask] the options of `RSpec::Core::RakeTask`
        def initialize(name = :mem_check, **options, &block)
          settings, names = options.partition { |key, _| Configuration::SETTINGS.include?(key) }.map(&:to_h)
          @mem_check = MemCheck.configuration.copy(**settings)
          super(names.empty? ? name : names, &block)
        end

        # @return [Configuration] of this task
        attr_reader :mem_check

        # Runs the specs in a child.
        # @api private
        def run_task(verbose)
          command = spec_command
          command = "#{command} --require #{Shellwords.escape(REPEAT)}" if mem_check.repeats?
          puts command if verbose
          status = Check.new(mem_check).run do |environment, prefix|
            system(environment, "#{prefix}#{command}", unsetenv_others: with_clean_environment || false)
            Process.last_status
          end
          exit(status) unless status.zero? || !fail_on_error
        end
      end
    end
  end
end
