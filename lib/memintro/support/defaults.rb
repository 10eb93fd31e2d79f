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
    # The settings whose value is not nil if they are not set.
    VALUES = { format: :text, native_children: false, mode: :full, objects: false, stack_depth: 1 }.freeze
    # Number of call sites in a table: as many as fit a screen.
    TOP = 20
    # The formats of a report. `top`: how many call sites it shows by default; nil: all. `stacks`: whether it shows
    # whole stacks, if there are any. The extension has a writer for each.
    FORMATS = { text: { top: TOP }, json: { stacks: true }, html: { stacks: true }, folded: { stacks: true },
                speedscope: { stacks: true } }.freeze
    # How the names of all variables begin.
    PREFIX = "MEMINTRO_"

    # What the file of a report may be called that is a stream which the process already has open. If that were opened
    # again, it would be written from its beginning.
    STREAMS = { nil => STDERR, "-" => STDERR, "/dev/stderr" => STDERR, "/dev/stdout" => STDOUT }.freeze

    # @param format [Symbol]
    # @return [Integer, nil] how many call sites a report of that format shows by default; nil: all
    def self.top(format)
      FORMATS.dig(format.to_s.to_sym, :top)
    end

    # Settings whose variables have to be read and checked by {Settings}.
    CHECKED = %w[MEMINTRO_FORMAT MEMINTRO_TOP MEMINTRO_BY MEMINTRO_EVERY MEMINTRO_COMPAT MEMINTRO_NATIVE_CHILDREN
                 MEMINTRO_SAMPLE_BYTES MEMINTRO_NATIVE_CALLERS MEMINTRO_STOP_AFTER MEMINTRO_MAX_SITES
                 MEMINTRO_MAX_TRACKER_BYTES].freeze
    # What the variable of objects may be that names no class.
    OBJECTS = { nil => false, "0" => false, "1" => true, "sampled" => :sampled }.freeze

    # Most programs set no more than the mode, the file of the report, its folder, objects and the depth of stacks. They
    # need not load {Settings} for that.
    #
    # @param env [#[]] variables
    # @return [Hash{Symbol => Object}, nil] the settings that have a value; nil: {Configuration} must read them
    def self.plain(env)
      return if CHECKED.any? { |name| given(env, name) }

      text = given(env, "MEMINTRO_MODE")
      mode = text ? MODES.keys.find { |one| one.name == text } : VALUES[:mode]
      objects = OBJECTS.fetch(given(env, "MEMINTRO_OBJECTS"), :others)
      depth = depth(given(env, "MEMINTRO_STACK_DEPTH"))
      return if mode.nil? || depth.nil? || objects == :others

      { **VALUES, mode: mode, objects: objects, stack_depth: depth, report: given(env, "MEMINTRO_REPORT"),
                  app_root: given(env, "MEMINTRO_APP_ROOT") }
    end

    def self.given(env, name)
      text = env[name]
      text unless text.nil? || text.empty?
    end
    private_class_method :given

    def self.depth(text)
      return VALUES[:stack_depth] unless text

      number = text.to_i
      number if number.to_s == text && number.between?(1, MOST_STACK_DEPTH)
    end
    private_class_method :depth
  end
end
