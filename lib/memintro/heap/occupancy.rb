# frozen_string_literal: true

require_relative "../support/list"
require_relative "../support/units"
require_relative "../support/value_object"

module Memintro
  # How full the pages of Ruby's heap are, and which objects keep nearly empty pages: why Ruby does not give memory
  # back. A page can be given back only if it holds no object. Frozen.
  #
  # @example
  #   Memintro.occupancy.sparse_pages         # => 812
  #   Memintro.occupancy.holders.first.name   # => "String"
  class Occupancy
    include ValueObject

    # Names of the figures, in the order of {#to_h}.
    ATTRIBUTES = %i[pages slots live_slots free_slots sparse_pages sparse_live_slots empty_pages pools holders].freeze

    # @return [List<Pool>] a row for each size of slot, the smallest first
    attr_reader :pools
    # @return [List<Holder>] classes of the objects on sparse pages, the one on most pages first
    attr_reader :holders
    # @return [Integer] pages without any object, which Ruby keeps for later or will give back
    attr_reader :empty_pages

    # @api private
    def initialize(pools, holders, empty_pages)
      @pools = pools
      @holders = holders
      @empty_pages = empty_pages
      freeze
    end

    # @!attribute [r] pages
    #   @return [Integer] pages in use
    # @!attribute [r] slots
    #   @return [Integer] slots on them
    # @!attribute [r] live_slots
    #   @return [Integer] slots that are taken, garbage that is not collected yet included: `GC.stat`'s
    #     `heap_live_slots` and `heap_final_slots` together, at that instant
    # @!attribute [r] free_slots
    #   @return [Integer] slots that are not
    # @!attribute [r] sparse_pages
    #   @return [Integer] pages with fewer than 5% of their slots taken
    # @!attribute [r] sparse_live_slots
    #   @return [Integer] slots that are taken on these
    %i[pages slots live_slots free_slots sparse_pages sparse_live_slots].each do |name|
      define_method(name) { @pools.sum(&name) }
    end

    # @return [Hash{Symbol => Object}] every figure; pools and holders as arrays of hashes
    def to_h
      super.merge(pools: pools.map(&:to_h), holders: holders.map(&:to_h))
    end

    # @return [String] one short line
    def inspect
      kept = holders.first(3).map(&:name).join(", ")
      "#<#{self.class} #{Units.counted(pages, 'page')}, #{Units.share(live_slots, slots)} of " \
        "#{Units.noun(pages, 'its', 'their')} slots taken; " \
        "#{Units.counted(sparse_pages, 'page')} with under 5%#{", held by #{kept}" unless kept.empty?}>"
    end
    alias to_s inspect

    # Pages whose slots have one size. Ruby 3.1 has one such pool, later ones five. Frozen.
    class Pool
      include ValueObject

      # Names of the figures, in the order of {#to_h}.
      ATTRIBUTES = %i[slot_size pages slots live_slots free_slots sparse_pages sparse_live_slots].freeze

      # @return [Integer] bytes of a slot
      attr_reader :slot_size
      # @return [Integer] pages in use
      attr_reader :pages
      # @return [Integer] slots on them
      attr_reader :slots
      # @return [Integer] slots that are taken, garbage that is not collected yet included
      attr_reader :live_slots
      # @return [Integer] pages with fewer than 5% of their slots taken
      attr_reader :sparse_pages
      # @return [Integer] slots that are taken on these
      attr_reader :sparse_live_slots

      # @api private
      def initialize(slot_size, pages, slots, live_slots, sparse_pages, sparse_live_slots)
        @slot_size = slot_size
        @pages = pages
        @slots = slots
        @live_slots = live_slots
        @sparse_pages = sparse_pages
        @sparse_live_slots = sparse_live_slots
        freeze
      end

      # @return [Integer] slots that are not taken
      def free_slots
        slots - live_slots
      end

      # @return [String] one short line
      def inspect
        "#<#{self.class} #{slot_size} B slots: #{Units.counted(pages, 'page')}, " \
          "#{Units.share(live_slots, slots)} taken, #{Units.counted(sparse_pages, 'page')} with under 5%>"
      end
      alias to_s inspect
    end

    # Objects of one class on sparse pages. Frozen.
    class Holder
      include ValueObject

      # Names of the figures, in the order of {#to_h}.
      ATTRIBUTES = %i[name count pages].freeze

      # @return [String] as {HistogramRow#name}
      attr_reader :name
      # @return [Integer] its objects on sparse pages
      attr_reader :count
      # @return [Integer] sparse pages that have one of them; a page can be held by several classes
      attr_reader :pages

      # @api private
      def initialize(name, count, pages)
        @name = name
        @count = count
        @pages = pages
        freeze
      end

      # @return [String] one short line
      def inspect
        "#<#{self.class} #{name}: #{Units.count(count)} on #{Units.counted(pages, 'page')}>"
      end
      alias to_s inspect
    end
  end
end
