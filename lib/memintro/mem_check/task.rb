# frozen_string_literal: true

require_relative "../mem_check"

module Memintro
  module MemCheck
    # The common part of the tasks for Minitest and for RSpec.
    # @api private
    module Task
      # @param name [Symbol, Hash] name of the task, with its dependencies; `:mem_check` by default
      # @param options [Hash{Symbol => Object}] settings of {Configuration}, for this task alone; any other key is the
      #   task's name, as Rake has it
      # @yieldparam task [Task] the options of Rake's or RSpec's own task
      def initialize(name = :mem_check, **options, &block)
        settings, names = options.partition { |key, _| Configuration::SETTINGS.include?(key) }.map(&:to_h)
        @mem_check = MemCheck.configuration.copy(**settings)
        super(names.empty? ? name : names, &block)
      end

      # @return [Configuration] of this task
      attr_reader :mem_check

      private

      # @yieldparam environment [Hash{String => String, nil}] for the command
      # @yieldparam prefix [String] beginning of the command line
      # @yieldreturn [Object] ignored; the command that was run last counts
      # @return [Integer] the exit status
      def checked
        Check.new(mem_check).run do |environment, prefix|
          yield environment, prefix
          Process.last_status
        end
      end
    end
  end
end
