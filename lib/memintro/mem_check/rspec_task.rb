# frozen_string_literal: true

require "rspec/core/rake_task"
require "shellwords"
require_relative "task"

module Memintro
  module MemCheck
    module RSpec
      # A Rake task that runs specs as `RSpec::Core::RakeTask` does, with its options, and checks what the gem's C code
      # leaks.
      #
      # @example In a Rakefile
      #   Memintro::MemCheck::RSpec::RakeTask.new(mem_check: :compile)
      class RakeTask < ::RSpec::Core::RakeTask
        # The file that repeated specs require first.
        REPEAT = File.expand_path("repeat_rspec.rb", __dir__).freeze
        private_constant :REPEAT
        include Task

        # Runs the specs in a child.
        # @api private
        def run_task(verbose)
          command = spec_command
          command = "#{command} --require #{Shellwords.escape(REPEAT)}" if mem_check.repeats?
          puts command if verbose
          status = checked do |environment, prefix|
            system(environment, "#{prefix}#{command}", unsetenv_others: with_clean_environment || false)
          end
          exit(status) unless status.zero? || !fail_on_error
        end
      end
    end
  end
end
