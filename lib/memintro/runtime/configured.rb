# frozen_string_literal: true

require_relative "../support/brake"
require_relative "../support/defaults"
require_relative "loader"
require_relative "main_ractor"

module Memintro
  # Methods of {Memintro} that return settings. {Memintro} is extended with them.
  module Configured
    # @return [Configuration] defaults of {start}, {report} and of the report at exit. At first those of the
    #   `MEMINTRO_…` variables.
    # @raise [ArgumentError] if one of the variables has a wrong value
    def configuration
      MainRactor.only
      Loader.need(:Configuration)
      # Takes no lock: reports are also written in signal handlers, and reading ENV twice gives the same result.
      @configuration ||= Configuration.new(@variables || ENV)
    end

    # @yieldparam configuration [Configuration]
    # @return [nil]
    # @example
    #   Memintro.configure { |c| c.max_tracker_bytes = 256 * 1024 * 1024 }
    def configure
      yield configuration
      nil
    end

    # @api private
    # @param name [Symbol]
    # @return [Object, nil] as {configuration} has it, which is made only if something is configured
    def setting(name)
      MainRactor.only
      plain = Defaults.plain(@variables || ENV) unless @configuration
      plain ? plain[name] : configuration.public_send(name)
    end

    private

    # Settings come from these variables from now on; later changes by the program have no effect.
    # @param variables [Hash{String => String}]
    def read_variables(variables)
      @variables = variables
      configuration unless Defaults.plain(variables)
      nil
    end
  end
end
