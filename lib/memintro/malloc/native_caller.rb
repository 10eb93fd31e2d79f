# frozen_string_literal: true

require_relative "../support/value_object"

module Memintro
  # A C function that led from a call site to malloc, with its part of the site's figures. All figures are estimates
  # from samples of single allocations. Frozen.
  #
  # @example
  #   caller = Memintro["app.rb:12"].native_callers.first
  #   caller.name         # => "redcarpet.so(rb_redcarpet_rbase_alloc+0x1c)"
  #   caller.live_share   # => 1.0
  class NativeCaller
    # Names of the attributes, in the order of {#to_h}.
    ATTRIBUTES = %i[name frames location samples live_samples share live_share].freeze

    include ValueObject

    # @return [Array<String>] names of frames, the innermost first: the function that called the allocator, or Ruby's
    #   `xmalloc`; the one that called it; and, if that is of the same library, the one that called into the library.
    #   Empty for `(other)`
    attr_reader :frames
    # @return [String, nil] file and line of C of the innermost frame, where debug information is installed
    attr_reader :location
    # @return [Integer] sampled allocations that came this way
    attr_reader :samples
    # @return [Integer] sampled blocks that came this way and are live
    attr_reader :live_samples
    # @return [Float] estimated part of the site's allocations, from 0 to 1
    attr_reader :share
    # @return [Float, nil] estimated part of the site's live bytes, from 0 to 1; nil if no sampled block of it is live
    attr_reader :live_share

    # @api private
    # @param row [Array] frames, location, samples, live samples, share, live share
    def initialize(row)
      @frames, @location, @samples, @live_samples, @share, @live_share = row
      freeze
    end

    # @return [String] the innermost frame, or `(other)`: what came through too many different functions
    def name
      frames.first || "(other)"
    end

    # @return [String] the way from the outermost frame that is known to the innermost one
    def path
      frames.empty? ? name : frames.reverse.join(" → ")
    end

    # @return [String] path, line of C and shares
    def to_s
      part = live_share ? "~#{percent(live_share)} of its live bytes" : "~#{percent(share)} of its allocations"
      [path, location && "(#{location})", part].compact.join(" ")
    end

    # @return [String] one short line
    def inspect
      "#<#{self.class} #{self}, #{samples} samples>"
    end

    private

    def percent(part) = "#{(part * 100).round}%"
  end
end
