# frozen_string_literal: true

require_relative "rules"

module Memintro
  module MemCheck
    # The result: findings, live blocks of the libraries, notes.
    # @api private
    Found = Struct.new(:findings, :live_blocks, :notes)

    # One run of the tests: the environment of their command, and the result. {FollowedRun} and {ValgrindRun}
    # implement it.
    # @api private
    class TestRun
      # @return [Found]
      attr_reader :found

      # @param config [Configuration]
      def initialize(config)
        @config = config
        @rules = Rules.new(config.skipped_ruby_functions)
        @found = Found.new([], nil, [])
      end

      private

      # A shell in between reports the signal by its own status.
      # @param status [Process::Status, nil]
      # @return [Integer, nil] the signal that ended the tests
      def signal_of(status)
        status&.termsig || (status&.exitstatus.to_i > 128 ? status.exitstatus - 128 : nil)
      end
    end
  end
end
