# frozen_string_literal: true

require_relative "../support/units"
require_relative "../support/value_object"

module Memintro
  # The memory of the container: the limit of this process's control group, and how far it is from being killed. Frozen.
  # Groups are nested, and each may have a limit: the figures are those of the group that reaches its limit first.
  #
  # @example
  #   Memintro.cgroup&.distance_bytes   # => 188_743_680
  class Cgroup
    include ValueObject

    # Names of the figures, in the order of {#to_h}.
    ATTRIBUTES = %i[version path limit_bytes usage_bytes reclaimable_bytes distance_bytes high_bytes
                    high_distance_bytes].freeze

    # @return [Integer] 1 or 2, of the kernel's interface
    attr_reader :version
    # @return [String] folder of the group that the figures are of: the tightest of all around this process
    attr_reader :path
    # @return [Integer, nil] most bytes that the group may use (`memory.max`, `memory.limit_in_bytes`); nil: no limit
    attr_reader :limit_bytes
    # @return [Integer] bytes it uses, page cache included (`memory.current`, `memory.usage_in_bytes`)
    attr_reader :usage_bytes
    # @return [Integer] of these, page cache that the kernel drops before it kills (`inactive_file`)
    attr_reader :reclaimable_bytes
    # @return [Integer, nil] bytes from which on the kernel slows the group down (`memory.high`), the tightest of all
    #   groups around this process too; nil: nowhere, and with version 1 always
    attr_reader :high_bytes
    # @return [Integer, nil] bytes from that group's usage to {high_bytes}
    attr_reader :high_distance_bytes

    # @api private
    def initialize(version:, path:, limit_bytes:, usage_bytes:, reclaimable_bytes:, high_bytes: nil,
                   high_distance_bytes: nil)
      @version = version
      @path = path
      @limit_bytes = limit_bytes
      @usage_bytes = usage_bytes
      @reclaimable_bytes = reclaimable_bytes
      @high_bytes = high_bytes
      @high_distance_bytes = high_distance_bytes
      freeze
    end

    # @return [Integer, nil] bytes that can still be allocated before the kernel kills, if nothing is swapped out; nil:
    #   no limit. Below zero where the limit was lowered under what is used.
    def distance_bytes
      @limit_bytes && (@limit_bytes - @usage_bytes + @reclaimable_bytes)
    end

    # @return [String] one short line
    def inspect
      limit = "of #{Units.bytes(@limit_bytes)}, killed after #{Units.bytes(distance_bytes)} more" if @limit_bytes
      "#<#{self.class} v#{@version} #{@path} #{Units.bytes(@usage_bytes)} #{limit || 'without limit'}>"
    end
    alias to_s inspect
  end
end
