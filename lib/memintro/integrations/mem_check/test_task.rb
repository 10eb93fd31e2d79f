# frozen_string_literal: true

require "rake/testtask"
require_relative "../../mem_check"

module Memintro
  module MemCheck
    # A Rake task that runs tests as `Rake::TestTask` does, with its options, and checks what the gem's C code leaks.
    #
    # @example In a Rakefile
    #   Memintro::MemCheck::TestTask.new(mem_check: :compile) { |t| t.libs << "test" }
    class TestTask < ::Rake::TestTask
      # What the tests require first if they are repeated.
      REPEAT = File.expand_path("repeat_minitest.rb", __dir__).freeze
      private_constant :REPEAT

      # @param name [Symbol, Hash] name of the task, with what it depends on; `:mem_check` by default
      # @param options [Hash{Symbol => Object}] settings of {Configuration}, for this task alone; any other key is the
      #   task's name, as Rake has it
      # @yieldparam task [TestTask] the options of `Rake::TestTask`
      def initialize(name = :mem_check, **options, &block)
        settings, names = options.partition { |key, _| Configuration::SETTINGS.include?(key) }.map(&:to_h)
        @mem_check = MemCheck.configuration.copy(**settings)
        super(names.empty? ? name : names, &block)
      end

      # @return [Configuration] of this task
      attr_reader :mem_check

      # Runs the tests in a child. The task ends with the status of the tests if they failed, otherwise with that of the
      # check.
      # @api private
      def ruby(arguments, *)
        status = Check.new(mem_check).run do |environment, prefix|
          again = "-r\"#{REPEAT}\" " if mem_check.repeats?
          system(environment, "#{prefix}#{::FileUtils::RUBY} #{again}#{arguments}")
          Process.last_status
        end
        exit(status) unless status.zero?
      end
    end
  end
end
