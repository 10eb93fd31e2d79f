# frozen_string_literal: true

require_relative "../mem_check"

module Memintro
  module MemCheck
    # What the tasks for Minitest and for RSpec have in common.
    # @api private
    module Task
      # @param name [Symbol, Hash] name of the task, with what it depends on; `:mem_check` by default
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
      # @yieldparam prefix [String] what the command's line begins with
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
