# frozen_string_literal: true

require_relative "work_measurement"

module Memintro
  # One request: its name and its cost. Each field of the line except `time` is a method.
  #
  # @api private
  class RequestMeasurement < WorkMeasurement
    # Fields of a line by default, in this order.
    DEFAULT_FIELDS = %i[method path status duration_ms rss_bytes rss_delta_bytes malloc_bytes malloc_calls
                        process_objects process_gc_ms in_flight pid tid request_id action error].freeze
    # All fields. `time` is added if no logger writes it. `freed_bytes` is not among the defaults, because garbage of
    # earlier work may be freed during any request; nor is `fragmentation_bytes`, which takes milliseconds.
    FIELDS = [*DEFAULT_FIELDS, :freed_bytes, :fragmentation_bytes, :time].freeze

    # @return [Hash] the request's
    attr_reader :env
    # @return [Integer, nil] nil if the server got none from here: an exception, a hijacked connection
    attr_reader :status

    # @param env [Hash] Rack's
    def initialize(env)
      super(REQUEST)
      @env = env
      # Read at the beginning, because the application may change them.
      @method = env["REQUEST_METHOD"]
      @script_name = env["SCRIPT_NAME"]
      @path_info = env["PATH_INFO"]
      @status = @error = nil
    end

    # @param status [Integer, nil]
    # @param error [Exception, nil]
    # @return [Boolean] whether this was the first call
    def finish(status, error = nil)
      # The connection was hijacked: its new owner answers elsewhere.
      taken_over = !@env["rack.hijack_io"].nil? || status == -1
      return false unless end_work(here: !taken_over && !live?)

      @status = status unless taken_over
      @error = error
      true
    end

    # @return [String] GET and the like. `Object#method` is not wanted here.
    def method
      @method
    end

    # @return [String] without the query, which may hold secrets
    def path
      "#{@script_name}#{@path_info}"
    end

    # @return [String, nil] Rails', else the client's or proxy's
    def request_id
      @env["action_dispatch.request_id"] || @env["HTTP_X_REQUEST_ID"]
    end

    # @return [String, nil] `posts#show`, in Rails
    def action
      parameters = @env["action_dispatch.request.path_parameters"]
      return unless parameters.is_a?(Hash) && parameters[:controller]

      "#{parameters[:controller]}##{parameters[:action]}"
    end

    # @return [String, nil] class of the exception that ended the request
    def error
      @error&.class&.name
    end

    private

    # Rails runs the actions of a controller with ActionController::Live in another thread.
    def live?
      controller = @env["action_controller.instance"]
      return false if controller.nil? || !defined?(::ActionController::Live)

      # If the constant is only registered for autoload, no controller has it; naming it here would load it.
      !::ActionController.autoload?(:Live) && ::ActionController::Live === controller
    end
  end
end
