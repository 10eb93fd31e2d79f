# frozen_string_literal: true

require_relative "../../error"
require_relative "../../support/advice"
require_relative "../../support/units"

module Memintro
  class Account
    # Takes an account of this process: a frozen copy of it counts.
    # @api private
    module Copying
      # What a copy takes at least: its tables, a page table for each 512 pages, and 4 bits for each block of 32 bytes.
      LEAST_ROOM = 8 << 20
      PAGE_TABLES = 512
      BLOCKS = 64
      private_constant :LEAST_ROOM, :PAGE_TABLES, :BLOCKS

      # @param ruby [Boolean] with Ruby's heap
      # @param pagemap [Boolean]
      # @param seconds [Integer] after which a copy is given up
      # @param cgroup [Cgroup, nil]
      # @return [Account]
      # @raise [AccountError]
      def self.take(ruby:, pagemap:, seconds:, cgroup: nil)
        refuse_near_limit(cgroup)
        Account.of_hash(Native.account(ruby, pagemap, seconds, Advice.names_commands?))
      end

      # Where the container is about to be full, the kernel could end the program for what the copy takes.
      def self.refuse_near_limit(cgroup)
        room = cgroup&.distance_bytes
        return if room.nil?

        need = LEAST_ROOM + (Native.rss / PAGE_TABLES) + (Native.rss / BLOCKS)
        return if room >= need

        raise AccountError, "the container's memory is full but for #{Units.bytes([room, 0].max)} (#{cgroup.path}), " \
                            "and the copy of this process that counts may take #{Units.bytes(need)}: the kernel " \
                            "could end the program for it. ProcessMemory reads figures without a copy"
      end
      private_class_method :refuse_near_limit
    end
  end
end
