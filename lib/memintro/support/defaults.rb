# frozen_string_literal: true

module Memintro
  # The values and limits of settings that a start needs. A program that sets nothing does not load {Settings} and
  # {Configuration} for them.
  # @api private
  module Defaults
    # Ways to track, and the numbers the hook has for them.
    MODES = { full: 1, sampled: 2 }.freeze
    # Greatest mean distance of two sampled bytes.
    MOST_SAMPLE_BYTES = 2**30
    # Most call sites that the table of blocks can tell apart.
    MOST_SITES = 2**24
    # Most lines of a call site.
    MOST_STACK_DEPTH = 64
    # Least budget: a smaller one would leave no memory for blocks.
    LEAST_TRACKER_BYTES = 4 * 1024 * 1024
    # The settings whose value is not nil if nobody says.
    VALUES = { format: :text, native_children: false, mode: :full, objects: false, stack_depth: 1 }.freeze
    # How the names of all variables begin.
    PREFIX = "MEMINTRO_"

    # @param env [#each_key] variables
    # @return [Boolean] whether one of them may be a setting
    def self.overridden?(env = ENV)
      env.each_key.any? { |name| name.start_with?(PREFIX) }
    end
  end
end
