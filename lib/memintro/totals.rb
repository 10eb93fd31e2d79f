# frozen_string_literal: true

require_relative "units"
require_relative "value_object"

module Memintro
  # Traffic of the whole process since tracking started, or since {Memintro.clear}. Frozen.
  #
  # @example
  #   totals = Memintro.totals
  #   totals.live_bytes   # => 51_200_000
  #   totals[:frees]      # => 50_000
  class Totals
    include ValueObject

    # Names of the figures, in the order of {#to_h}.
    ATTRIBUTES = %i[allocated_bytes freed_bytes live_bytes allocations frees live_blocks missed_frees tracker_bytes
                    dropped].freeze

    # @return [Integer] bytes that all tracked allocations asked for
    attr_reader :allocated_bytes
    # @return [Integer] bytes of the tracked blocks that were given back
    attr_reader :freed_bytes
    # @return [Integer] number of tracked allocations
    attr_reader :allocations
    # @return [Integer] number of tracked blocks that were given back
    attr_reader :frees
    # @return [Integer] blocks whose free went past the hook, found out when their address was handed out again
    attr_reader :missed_frees
    # @return [Integer] resident bytes that tracking itself uses
    attr_reader :tracker_bytes
    # @return [Integer] allocations that could not be followed because the budget or the memory ran out
    attr_reader :dropped

    # @api private
    def initialize(allocated_bytes, freed_bytes, allocations, frees, missed_frees, tracker_bytes, dropped)
      @allocated_bytes = allocated_bytes
      @freed_bytes = freed_bytes
      @allocations = allocations
      @frees = frees
      @missed_frees = missed_frees
      @tracker_bytes = tracker_bytes
      @dropped = dropped
      freeze
    end

    # @return [Integer] bytes of the blocks that are live now
    def live_bytes
      @allocated_bytes - @freed_bytes
    end

    # @return [Integer] number of blocks that are live now
    def live_blocks
      @allocations - @frees
    end

    # What happened between two moments. `tracker_bytes` is a level, not a flow: it stays the later one.
    #
    # @param earlier [Totals]
    # @return [Totals]
    # @raise [TypeError] if `earlier` is something else
    # @example
    #   before = Memintro.totals
    #   handle(request)
    #   (Memintro.totals - before).live_bytes
    def -(earlier)
      raise TypeError, "#{earlier.inspect} is not a Memintro::Totals" unless earlier.is_a?(Totals)

      Totals.new(allocated_bytes - earlier.allocated_bytes, freed_bytes - earlier.freed_bytes,
                 allocations - earlier.allocations, frees - earlier.frees,
                 missed_frees - earlier.missed_frees, tracker_bytes, dropped - earlier.dropped)
    end

    # @return [String] one short line
    def inspect
      "#<#{self.class} live #{Units.bytes(live_bytes)} in #{live_blocks} blocks, allocated " \
        "#{Units.bytes(allocated_bytes)} in #{allocations}, freed #{Units.bytes(freed_bytes)} in #{frees}>"
    end
    alias to_s inspect
  end

  # Traffic of one thread since it was first seen. Frozen. A block that another thread gave back counts as freed there.
  class ThreadTotals
    include ValueObject

    # Names of the figures, in the order of {#to_h}.
    ATTRIBUTES = %i[allocated_bytes freed_bytes allocations frees].freeze

    # @return [Integer] bytes this thread asked for
    attr_reader :allocated_bytes
    # @return [Integer] bytes of tracked blocks that this thread gave back, whoever allocated them
    attr_reader :freed_bytes
    # @return [Integer] number of this thread's allocations
    attr_reader :allocations
    # @return [Integer] number of tracked blocks that this thread gave back
    attr_reader :frees

    # @api private
    def initialize(allocated_bytes, freed_bytes, allocations, frees)
      @allocated_bytes = allocated_bytes
      @freed_bytes = freed_bytes
      @allocations = allocations
      @frees = frees
      freeze
    end

    # What this thread did between two moments.
    #
    # @param earlier [ThreadTotals] of the same thread
    # @return [ThreadTotals]
    # @raise [TypeError] if `earlier` is something else
    def -(earlier)
      raise TypeError, "#{earlier.inspect} is not a Memintro::ThreadTotals" unless earlier.is_a?(ThreadTotals)

      ThreadTotals.new(allocated_bytes - earlier.allocated_bytes, freed_bytes - earlier.freed_bytes,
                       allocations - earlier.allocations, frees - earlier.frees)
    end

    # @return [String] one short line
    def inspect
      "#<#{self.class} allocated #{Units.bytes(allocated_bytes)} in #{allocations}, " \
        "freed #{Units.bytes(freed_bytes)} in #{frees}>"
    end
    alias to_s inspect
  end
end
