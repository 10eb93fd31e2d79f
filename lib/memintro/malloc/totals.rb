# frozen_string_literal: true

require_relative "../support/estimates"
require_relative "../support/figures"
require_relative "../support/units"
require_relative "../support/value_object"

module Memintro
  # Traffic of the whole process since tracking started, or since {Memintro.clear}. Frozen.
  #
  # @example
  #   totals = Memintro.totals
  #   totals.live_bytes   # => 51_200_000
  #   totals[:frees]      # => 50_000
  class Totals
    # Names of the figures, in the order of {#to_h}.
    ATTRIBUTES = Figures.names(Figures::TOTALS, :sum, :exact, :derived)
    # The figures that have a standard error: `live_bytes_standard_error` and so on.
    ESTIMATES = Figures.names(Figures::TOTALS, :sum, :derived)

    include FigureLists::TotalReaders
    include ValueObject
    include Estimates

    # @param figures [Array] see Memintro::Native.totals and Native::Report#totals
    # @return [Totals]
    # @api private
    def self.from_native(figures)
      new(*figures.first(Figures::OF_PROCESS.size), figures[NATIVE.size], per_sample: figures[NATIVE.size + 1])
    end

    # The figures of Memintro::Native.totals before the variances.
    NATIVE = Figures.names(Figures::TOTALS, :sum, :exact, :state)
    private_constant :NATIVE

    # @api private
    # @param figures [Array] those of {Figures::OF_PROCESS}; and a variance and a skew of each, or nil: all is exact
    # @param is_flow [Boolean] whether these are differences of totals
    # @param per_sample [Array(Float, Float), nil] of bytes and of blocks, where these figures' own samples do not tell
    def initialize(*figures, is_flow: false, per_sample: nil)
      @figures = figures.first(Figures::OF_PROCESS.size).freeze
      @variances = figures[Figures::OF_PROCESS.size]
      @is_flow = is_flow
      @per_sample = per_sample
      freeze
    end

    # @return [Integer] bytes of the blocks that are live now
    def live_bytes
      allocated_bytes - freed_bytes
    end

    # @return [Integer] number of blocks that are live now
    def live_blocks
      allocations - frees
    end

    # Returns what happened between two moments. `tracker_bytes` is a level, not a flow, so it is the later one. The
    # standard errors of live figures are then upper bounds.
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

      flows = Figures::OF_PROCESS.map { |name| name == :tracker_bytes ? tracker_bytes : self[name] - earlier[name] }
      Totals.new(*flows, variances_since(earlier),
                 is_flow: true, per_sample: all_per_sample.zip(earlier.all_per_sample).map(&:max))
    end

    # @api private
    # @return [Array<String>] limits of these figures, a line each
    def caveats
      [*(dropped_caveat if dropped.positive?), *(missed_caveat if missed_frees.positive?)]
    end

    # @return [String] one short line
    def inspect
      bytes = Units.method(:bytes)
      "#<#{self.class} live #{shown(:live_bytes, &bytes)} in #{counted(:live_blocks, 'block', &:to_s)}, allocated " \
        "#{shown(:allocated_bytes, &bytes)} in #{shown(:allocations, &:to_s)}, freed " \
        "#{shown(:freed_bytes, &bytes)} in #{shown(:frees, &:to_s)}>"
    end
    alias to_s inspect

    protected

    # @return [Array<Float>, nil]
    attr_reader :variances

    # @return [Array(Float, Float)] of bytes and of blocks
    def all_per_sample
      estimated? ? %i[allocated_bytes allocations].map { |name| per_sample(name) } : [0.0, 0.0]
    end

    private

    def dropped_caveat
      "#{Units.counted(dropped, 'allocation')} could not be followed: the budget (max_tracker_bytes), the memory or " \
        "the 65,536 different sizes of 64 KiB and more that fit the table ran out. The figures are too low by these."
    end

    def missed_caveat
      "#{Units.counted(missed_frees, 'free')} went past the hook and #{Units.noun(missed_frees, 'was', 'were')} " \
        "noticed when the address came back."
    end

    def estimate_of(name) = Native.total_estimate(@figures, @variances, @per_sample, @is_flow, name)

    def figures_per_sample = Figures::OF_PROCESS_ESTIMATED

    def variances_since(earlier)
      return variances unless variances && earlier.variances

      variances.zip(earlier.variances).map { |now, before| now - before }
    end
  end

  # Allocations and frees of one thread since it was first seen. Frozen. A block that another thread frees counts as
  # freed in that thread.
  #
  # In sampled mode `allocated_bytes` is still exact (and includes calls that failed); the other figures are estimates.
  class ThreadTotals
    # Names of the figures, in the order of {#to_h}.
    ATTRIBUTES = %i[allocated_bytes freed_bytes allocations frees].freeze
    # The figures that have a standard error: `freed_bytes_standard_error` and so on.
    ESTIMATES = %i[freed_bytes allocations frees].freeze

    include ValueObject
    include Estimates

    # @return [Integer] bytes this thread asked for
    attr_reader :allocated_bytes
    # @return [Integer] bytes of tracked blocks that this thread gave back, from any thread
    attr_reader :freed_bytes
    # @return [Integer] number of this thread's allocations
    attr_reader :allocations
    # @return [Integer] number of tracked blocks that this thread gave back
    attr_reader :frees

    # @api private
    # @param variances [Array(Array(Float, Float)), nil] of {ESTIMATES}, each with what one sample stands for; nil: all
    #   is exact
    def initialize(allocated_bytes, freed_bytes, allocations, frees, variances = nil)
      @allocated_bytes = allocated_bytes
      @freed_bytes = freed_bytes
      @allocations = allocations
      @frees = frees
      @variances = variances
      freeze
    end

    # Returns what this thread did between two moments.
    #
    # @param earlier [ThreadTotals] of the same thread
    # @return [ThreadTotals]
    # @raise [TypeError] if `earlier` is something else
    def -(earlier)
      raise TypeError, "#{earlier.inspect} is not a Memintro::ThreadTotals" unless earlier.is_a?(ThreadTotals)

      ThreadTotals.new(allocated_bytes - earlier.allocated_bytes, freed_bytes - earlier.freed_bytes,
                       allocations - earlier.allocations, frees - earlier.frees, variances_since(earlier))
    end

    # @return [String] one short line
    def inspect
      "#<#{self.class} allocated #{Units.bytes(allocated_bytes)} in #{shown(:allocations, &:to_s)}, " \
        "freed #{shown(:freed_bytes) { |count| Units.bytes(count) }} in #{shown(:frees, &:to_s)}>"
    end
    alias to_s inspect

    protected

    # @return [Array(Array(Float, Float)), nil]
    attr_reader :variances

    private

    def estimate_of(name)
      Native.estimate(self[name], *@variances[ESTIMATES.index(name)], false)
    end

    # How much one sample stands for is not a flow, so it is not subtracted.
    def variances_since(earlier)
      return variances unless variances && earlier.variances

      variances.zip(earlier.variances).map { |(now, one), (before, other)| [now - before, [one, other].max] }
    end
  end
end
