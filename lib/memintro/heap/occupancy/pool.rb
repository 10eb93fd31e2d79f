# frozen_string_literal: true

require_relative "../../support/units"
require_relative "../../support/value_object"

module Memintro
  class Occupancy
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
  end
end
