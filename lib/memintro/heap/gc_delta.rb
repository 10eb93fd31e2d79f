# frozen_string_literal: true

require_relative "../support/arguments"
require_relative "../support/units"
require_relative "../support/value_object"

module Memintro
  # The work of the garbage collector while a block ran, in the whole process: see {Memintro.gc_delta}. Frozen.
  #
  # @example
  #   delta = Memintro.gc_delta { parse(document) }
  #   delta.objects_allocated           # => 120_318
  #   delta[:heap_allocated_pages]      # => 12, any counter of GC.stat
  #   delta.before[:heap_live_slots]    # => 48_113
  #   delta.value                       # what parse returned
  class GcDelta
    include ValueObject

    # Names of the figures, in the order of {#to_h}.
    ATTRIBUTES = %i[objects_allocated objects_freed gc_count minor_gc_count major_gc_count gc_time_ns counters].freeze

    # @return [Object] the block's value
    attr_reader :value
    # @return [Hash{Symbol => Integer}] GC.stat right before the block
    attr_reader :before
    # @return [Hash{Symbol => Integer}] GC.stat right after the block
    attr_reader :after
    # @return [Integer] time that threads waited for the collector, in nanoseconds; 0 if GC.measure_total_time is off
    attr_reader :gc_time_ns

    # @api private
    # @yield
    # @return [GcDelta] of the block
    def self.during
      # Filled twice, so that the hashes exist before counting begins.
      before = GC.stat
      after = GC.stat
      begun = GC.total_time
      GC.stat(before)
      value = yield
      GC.stat(after)
      new(value, before, after, GC.total_time - begun)
    end

    # @api private
    def initialize(value, before, after, gc_time_ns)
      @value = value
      @before = before.freeze
      @after = after.freeze
      @gc_time_ns = gc_time_ns
      freeze
    end

    # @return [Integer] objects that were allocated
    def objects_allocated
      difference(:total_allocated_objects)
    end

    # @return [Integer] objects that were collected; they may have been allocated before the block
    def objects_freed
      difference(:total_freed_objects)
    end

    # @return [Integer] collections begun
    def gc_count
      difference(:count)
    end

    # @return [Integer] collections of young objects only
    def minor_gc_count
      difference(:minor_gc_count)
    end

    # @return [Integer] collections of all objects
    def major_gc_count
      difference(:major_gc_count)
    end

    # @return [Hash{Symbol => Integer}] the change of each counter of GC.stat; levels may have fallen
    def counters
      @after.to_h { |name, _| [name, difference(name)] }
    end

    # @param name [Symbol, String] a counter of GC.stat, or one of {ATTRIBUTES}
    # @return [Integer, Hash] its change
    # @raise [ArgumentError] if there is no such counter
    def [](name)
      key = name.respond_to?(:to_sym) ? name.to_sym : name
      return difference(key) if @after.key?(key)

      super
    rescue ArgumentError
      raise ArgumentError, "there is no counter #{Arguments.shown(name)}; there are " \
                           "#{(ATTRIBUTES | @after.keys).join(', ')}"
    end

    # @return [String] one short line
    def inspect
      "#<#{self.class} #{Units.counted(objects_allocated, 'object')} allocated, #{Units.count(objects_freed)} freed, " \
        "#{minor_gc_count} minor and #{major_gc_count} major GCs, #{format('%.1f', gc_time_ns / 1e6)} ms>"
    end
    alias to_s inspect

    private

    def difference(name)
      @after.fetch(name) - @before.fetch(name)
    end
  end
end
