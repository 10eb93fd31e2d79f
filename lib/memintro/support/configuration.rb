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
    MOST_SITES = Settings[:max_sites].allowed
    # Greatest mean distance of two sampled bytes.
    MOST_SAMPLE_BYTES = Settings[:sample_bytes].allowed
    # Most lines of a call site.
    MOST_STACK_DEPTH = Settings[:stack_depth].allowed
    # Least budget: a smaller one would leave no memory for blocks.
    LEAST_TRACKER_BYTES = Settings[:max_tracker_bytes].least

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
