# frozen_string_literal: true

require "rack/body_proxy"
require_relative "../logging/limits"
require_relative "../logging/memory_line_log"
require_relative "../logging/request_measurement"

module Memintro
  # Rack middleware: one line in the log for each request, with its cost in memory. `require "memintro/rack"`.
  #
  #     MEMORY method=GET path=/posts status=200 duration_ms=12.3 rss_bytes=91230208 rss_delta_bytes=4096 …
  #
  # A request lasts until its body is closed, streaming included. `malloc_bytes` and `malloc_calls` are those of its
  # own thread, and are present only if they are exact: while {Memintro.start} tracks; in sampled mode only
  # `malloc_bytes`. Figures of the process have `process` or `rss` in their names. docs/memory_lines.md explains each
  # field. Costs about 10 µs a request, twice that on busy cores. Errors of memintro do not reach the application.
  # Under `MEMINTRO_DISABLE` it passes requests on.
  #
  # @example
  #   require "memintro/rack"
  #   use Memintro::Middleware, one_in: 100, over: 50_000_000, skip: ["/assets", %r{\A/up\z}]
  class Middleware
    # Marks a request that is being measured, because the middleware may be in place twice.
    KEY = "memintro.request"

    # @param app [#call]
    # @param skip [String, Regexp, #call, Array, nil] requests without a line: paths with this beginning, paths that
    #   match, or Rack environments for which the callable returns true
    # @param options [Hash] of the line
    # @option options [Array<Symbol>] :fields fields of the line, in order; by default all except `freed_bytes` and
    #   `fragmentation_bytes`, with `time` only if the log does not add it
    # @option options [Symbol] :format `:logfmt` or `:json`
    # @option options [Integer] :one_in writes a line for one request in this many; default: for all, or with `over:`
    #   only for those
    # @option options [Integer] :over writes a line for each request that allocated more bytes or, if that is unknown,
    #   during which RSS grew by more
    # @option options [Boolean] :fragmentation adds `fragmentation_bytes`, the resident memory that malloc has free but
    #   keeps. Each line then takes an account of the process ({Memintro.account}), 0.03 to 0.2 s for each GiB, in the
    #   thread of the request, after its end. Use it with `one_in:` or `over:`
    # @option options [#info, #write] :logger by default `rack.logger`, else Rails', else standard error
    # @param max_rss_bytes [Integer, nil] a bound that RSS should stay below
    # @param max_growth_bytes_per_hour [Integer, nil] a bound for the growth of RSS, computed from at least ten
    #   minutes
    # @param on_limit [#call, nil] gets a {LimitExceeded} in a thread of its own, once for each time that a bound
    #   is crossed; nil: the log gets the {Diff} of two snapshots instead, the first of them taken at the first request.
    #   They walk Ruby's heap, which takes about 10 ms for each million objects
    # @raise [ArgumentError, TypeError] on a wrong option
    def initialize(app, skip: nil, max_rss_bytes: nil, max_growth_bytes_per_hour: nil, on_limit: nil, **options)
      @app = app
      @off = Brake.holds?
      return if @off

      @log = MemoryLineLog.new(default: RequestMeasurement::DEFAULT_FIELDS,
                               known: RequestMeasurement::FIELDS, **options)
      @limits = Limits.build(max_rss_bytes, max_growth_bytes_per_hour, on_limit, @log.target,
                             format: options.fetch(:format, :logfmt))
      @skip = Middleware.check_skip(skip)
    end

    # @param env [Hash]
    # @return [Array(Integer, Hash, #each)] the application's answer; a body that is no Array is wrapped, unless the
    #   server reports the end of the response
    def call(env)
      return @app.call(env) if @off || env.key?(KEY) || skip?(env)

      measure(RequestMeasurement.new(env), env)
    end

    # @api private
    def self.check_skip(skip)
      Array(skip).each do |one|
        next if one.is_a?(String) || one.is_a?(Regexp) || one.respond_to?(:call)

        raise TypeError, "skip is #{Arguments.shown(one)}; it must be a String, a Regexp, a callable, or an Array of " \
                         "those"
      end
    end

    private

    def measure(request, env)
      env[KEY] = request
      is_reported = wait_for_server(request, env["rack.response_finished"])
      before = $!
      request.begin_work
      response = @app.call(env)
      is_reported ? response : hand_over(request, response)
    ensure
      # The application raised an exception or used throw.
      finish(request, nil, $!.equal?(before) ? nil : $!) unless response || is_reported
    end

    # Servers of Rack 3 may report when they have finished.
    def wait_for_server(request, callbacks)
      return false unless callbacks.is_a?(Array)

      Memintro.untracked do
        callbacks << ->(_env, status, _headers, error) { finish(request, status, error) }
      end
      true
    end

    def hand_over(request, response)
      status, headers, body = response
      # An Array does no further work, and servers send it faster as an Array.
      if body.instance_of?(Array)
        finish(request, status)
        return response
      end

      Memintro.untracked { [status, headers, Rack::BodyProxy.new(body) { finish(request, status) }] }
    end

    def finish(request, status, error = nil)
      return unless request.finish(status, error)

      env = request.env
      env.delete(KEY)
      logger = env["rack.logger"]
      LogTarget.see(logger)
      @limits&.check(request.rss_bytes, logger)
      @log.write(request, logger)
    rescue StandardError => e
      @log.tell_once(e)
    end

    def skip?(env)
      return false if @skip.empty?

      Memintro.untracked do
        path = "#{env['SCRIPT_NAME']}#{env['PATH_INFO']}".b
        @skip.any? do |one|
          case one
          when String then path.start_with?(one.b)
          when Regexp then one.match?(path)
          else one.call(env)
          end
        end
      end
    rescue StandardError => e
      @log.tell_once(e)
      false
    end
  end
end
