# frozen_string_literal: true

require_relative "arguments"
require_relative "defaults"
require_relative "settings"
require_relative "untracked_text"

module Memintro
  # Defaults for {Memintro.start}, {Memintro.report} and the report at exit. Each setting has a variable of the same
  # name, `MEMINTRO_MAX_SITES` for {#max_sites}; the variables are read once, and {Memintro.configure} overrides them.
  #
  # `MEMINTRO_DISABLE=1` is not a setting, and cannot be overridden: it turns memintro off. With it, wrong values are
  # ignored instead of raising an error.
  class Configuration
    prepend UntrackedText

    # Ways to track, and the numbers the hook has for them.
    MODES = Defaults::MODES
    # Most call sites that the table of blocks can tell apart.
    MOST_SITES = Defaults::MOST_SITES
    # Greatest mean distance of two sampled bytes.
    MOST_SAMPLE_BYTES = Defaults::MOST_SAMPLE_BYTES
    # Most lines of a call site.
    MOST_STACK_DEPTH = Defaults::MOST_STACK_DEPTH
    # Least budget: a smaller one would leave no memory for blocks.
    LEAST_TRACKER_BYTES = Defaults::LEAST_TRACKER_BYTES

    # @!attribute [rw] mode
    #   @return [Symbol] `:full` or `:sampled`
    # @!attribute [rw] sample_bytes
    #   @return [Integer, nil] in sampled mode one byte in so many is sampled on average; nil: in 524,288
    # @!attribute [rw] objects
    #   @return [Boolean, :sampled, Array<Class, String>] whether Ruby objects are tracked, too, and of which classes
    # @!attribute [rw] stack_depth
    #   @return [Integer] lines of Ruby in a call site; from 2 on, call sites are whole stacks
    # @!attribute [rw] native_callers
    #   @return [Boolean, nil] whether native callers are sampled; nil: in full mode
    # @!attribute [rw] stop_after
    #   @return [Numeric, nil] seconds after which tracking stops by itself; nil: never
    # @!attribute [rw] max_sites
    #   @return [Integer, nil] most call sites to tell apart; nil: the hook's own limit
    # @!attribute [rw] max_tracker_bytes
    #   @return [Integer, nil] most bytes that tracking may use; nil: no limit
    # @!attribute [rw] app_root
    #   @return [String, nil] folder that reports show paths relative to; nil: the current one
    # @!attribute [rw] report
    #   @return [String, nil] file of the report at exit, `%p` becomes the process id; nil or `-`: standard error
    # @!attribute [rw] format
    #   @return [Symbol] of the report at exit: `:text`, `:json`, `:html`, `:folded` or `:speedscope`
    # @!attribute [rw] top
    #   @return [Integer, :all, nil] call sites in the report at exit; nil: 20 in text, all in JSON and HTML
    # @!attribute [rw] by
    #   @return [Symbol, nil] what the report at exit is sorted by, one of {CallSite::FIGURES}; nil: `live_bytes`, or
    #     `retained_bytes` if objects are tracked
    # @!attribute [rw] every
    #   @return [Numeric, nil] seconds between reports while the program runs; nil: only at exit
    # @!attribute [rw] compat
    #   @return [Symbol, nil] `:mwrap`: a plain `require "mwrap"` finds memintro's
    # @!attribute [rw] native_children
    #   @return [Boolean] whether a preloaded hook also tracks programs that are not Ruby
    Settings::ALL.each do |setting|
      variable = :"@#{setting.name}"
      define_method(setting.name) { instance_variable_get(variable) }
      define_method(:"#{setting.name}=") { |value| instance_variable_set(variable, checked(setting, value)) }
    end

    # @param env [#[]] variables to begin with
    # @raise [ArgumentError] if one of them has a wrong value
    def initialize(env = {})
      Settings::ALL.each do |setting|
        text = env[setting.variable]
        value = text.nil? || text.empty? ? setting.default : parsed(setting, text)
        instance_variable_set(:"@#{setting.name}", value)
      end
    end

    # @return [Boolean] whether `MEMINTRO_DISABLE` is set: see {Memintro.disabled?}
    def disabled?
      Brake.on?
    end

    # @return [Hash{Symbol => Object}] all settings
    def to_h
      Settings::ALL.to_h { |setting| [setting.name, public_send(setting.name)] }
    end

    # @return [String] the settings that have a value
    def inspect
      "#<#{self.class} #{to_h.compact.map { |name, value| "#{name}=#{value}" }.join(' ')}>"
    end

    private

    def parsed(setting, text)
      setting.parse(text)
    rescue ArgumentError
      Brake.on? ? setting.default : raise
    end

    def checked(setting, value)
      setting.check(value)
    rescue ArgumentError
      Brake.on? ? public_send(setting.name) : raise
    end
  end
end
