# frozen_string_literal: true

require_relative "../support/units"
require_relative "../support/value_object"

module Memintro
  # A limit of {Middleware} that was exceeded. Frozen.
  class LimitExceeded
    include ValueObject

    # Names of the figures, in the order of {#to_h}.
    ATTRIBUTES = %i[limit value_bytes limit_bytes rss_bytes pid].freeze

    # @return [Symbol] `:rss`, or `:growth` for growth an hour
    attr_reader :limit
    # @return [Integer] the measured figure: RSS, or its growth in an hour
    attr_reader :value_bytes
    # @return [Integer] the bound
    attr_reader :limit_bytes
    # @return [Integer]
    attr_reader :rss_bytes
    # @return [Integer] of the process
    attr_reader :pid

    # @api private
    def initialize(limit, value_bytes, limit_bytes, rss_bytes)
      @limit = limit
      @value_bytes = value_bytes
      @limit_bytes = limit_bytes
      @rss_bytes = rss_bytes
      @pid = Process.pid
      freeze
    end

    # @return [String] one short line
    def inspect
      what = limit == :rss ? "RSS is" : "RSS grows in an hour by"
      "#<#{self.class} #{what} #{Units.bytes(value_bytes)}, over #{Units.bytes(limit_bytes)}>"
    end
    alias to_s inspect
  end
end
