# frozen_string_literal: true

require "rake/testtask"
require_relative "task"

module Memintro
  module MemCheck
    # A Rake task that runs tests as `Rake::TestTask` does, with its options, and checks what the gem's C code leaks.
    #
    # @example In a Rakefile
    #   Memintro::MemCheck::TestTask.new(mem_check: :compile) { |t| t.libs << "test" }
    class TestTask < ::Rake::TestTask
      # The file that repeated tests require first.
      REPEAT = File.expand_path("repeat_minitest.rb", __dir__).freeze
      private_constant :REPEAT
      include Task

      # Runs the tests in a child. The task ends with the status of the tests if they failed, otherwise with that of the
      # check.
      # @api private
      def ruby(arguments, *)
        again = "-r\"#{REPEAT}\" " if mem_check.repeats?
        status = checked do |environment, prefix|
          system(environment, "#{prefix}#{::FileUtils::RUBY} #{again}#{arguments}")
        end
        exit(status) unless status.zero?
      end
    end
  end
end
