# frozen_string_literal: true

module Memintro
  # The values and limits of settings that a start needs. A program that sets nothing does not load {Settings} and
  # {Configuration} for them.
  # @api private
  module Defaults
    # Ways to track, and the numbers the hook has for them.
    MODES = { full: 1, sampled: 2 }.freeze
    # settings: made by `rake settings`
    # Values that are not nil, of settings that are not set.
    VALUES = { format: :text, native_children: false, mode: :full, objects: false, stack_depth: 1 }.freeze
    # Least and greatest numbers.
    LEAST = { max_tracker_bytes: 4_194_304 }.freeze
    MOST = { sample_bytes: 1_073_741_824, stack_depth: 64, max_sites: 16_777_216 }.freeze
    # What {Memintro.start} takes.
    START = %i[mode sample_bytes objects stack_depth native_callers stop_after max_sites max_tracker_bytes].freeze
    # Numbers that the hook takes, in its order; 0 is the default.
    HOOK = %i[sample_bytes stack_depth max_sites max_tracker_bytes].freeze
    # Variables that {Settings} has to read and check.
    CHECKED = %w[MEMINTRO_FORMAT MEMINTRO_TOP MEMINTRO_BY MEMINTRO_EVERY MEMINTRO_COMPAT
                 MEMINTRO_NATIVE_CHILDREN MEMINTRO_SAMPLE_BYTES MEMINTRO_NATIVE_CALLERS MEMINTRO_STOP_AFTER
                 MEMINTRO_MAX_SITES MEMINTRO_MAX_TRACKER_BYTES].freeze
    # /settings

    # Number of call sites in a table: as many as fit a screen.
    TOP = 20
    # The formats of a report. `top`: how many call sites it shows by default; nil: all. `stacks`: whether it shows
    # whole stacks, if there are any. The extension has a writer for each.
    FORMATS = { text: { top: TOP }, json: { stacks: true }, html: { stacks: true }, folded: { stacks: true },
                speedscope: { stacks: true } }.freeze
    Ractor.make_shareable(FORMATS)
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
      number if number.to_s == text && number.between?(1, MOST[:stack_depth])
    end
    private_class_method :depth
  end
end
