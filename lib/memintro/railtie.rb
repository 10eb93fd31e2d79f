# frozen_string_literal: true

require "rails/railtie"
require_relative "rack"

module Memintro
  # Inserts {Middleware} into a Rails application as the outermost one, so that the whole stack is measured; the line
  # then has Rails' request id and `posts#show`. In the Gemfile: `gem "memintro", require: "memintro/railtie"`.
  #
  # Settings below `config.memintro`, for config/application.rb or an environment's file: `enabled` (true), `start`
  # (nil; true, `:full` or `:sampled` tracks from the end of initialization), `objects` (nil; the argument of
  # {Memintro.start}, for `start`), `hunt` (nil; true, or the seconds between looks, begins {Memintro.hunt} at the end
  # of initialization; `on_finding` is its argument), and each option of {Middleware}.
  #
  # @example
  #   config.memintro.one_in = 100
  #   config.memintro.over = 50.megabytes
  #   config.memintro.skip = ["/assets", "/up"]
  #   config.memintro.start = true
  #   config.memintro.hunt = true
  class Railtie < ::Rails::Railtie
    # The settings of {Middleware}, with the same names.
    MIDDLEWARE_SETTINGS = %i[fields format one_in over fragmentation skip logger max_rss_bytes
                             max_growth_bytes_per_hour on_limit].freeze
    # All settings.
    SETTINGS = [:enabled, :start, :objects, :hunt, :on_finding, *MIDDLEWARE_SETTINGS].freeze

    config.memintro = ActiveSupport::OrderedOptions.new

    initializer "memintro.middleware" do |app|
      settings = Railtie.check(app.config.memintro)
      options = settings.slice(*MIDDLEWARE_SETTINGS).compact
      app.config.middleware.unshift(Middleware, **options) unless settings[:enabled] == false
    end

    config.after_initialize do |app|
      settings = app.config.memintro
      Railtie.start(settings[:start], settings[:objects]) if settings[:start] && settings[:enabled] != false
      Railtie.hunt(settings[:hunt], settings[:on_finding]) if settings[:hunt] && settings[:enabled] != false
    end

    # @api private
    # @param settings [Hash]
    # @return [Hash]
    # @raise [ArgumentError]
    def self.check(settings)
      unknown = settings.keys - SETTINGS
      return settings if unknown.empty? || Brake.on?

      raise ArgumentError, "config.memintro has no #{unknown.join(', ')}; it has #{SETTINGS.join(', ')}"
    end

    # An error in memintro must not stop the application.
    #
    # @api private
    # @param mode [true, Symbol]
    # @param objects [Boolean, Array, nil]
    # @return [void]
    def self.start(mode, objects = nil)
      Memintro.start(**{ mode: (mode unless mode == true), objects: objects }.compact)
    rescue Error => e
      ::Rails.logger&.warn("memintro does not track: #{e.message}")
    end

    # The same holds for a hunt.
    #
    # @api private
    # @param every [true, Numeric]
    # @param on_finding [#call, nil]
    # @return [void]
    def self.hunt(every, on_finding = nil)
      Memintro.hunt(**{ every: (every unless every == true), on_finding: on_finding }.compact)
    rescue Error => e
      ::Rails.logger&.warn("memintro does not hunt: #{e.message}")
    end
  end
end
