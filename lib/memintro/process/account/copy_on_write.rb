# frozen_string_literal: true

require_relative "../../support/units"

module Memintro
  class Account
    # What a process has made its own of the memory that it shared at a fork, in words: see docs/copy_on_write.md.
    # @api private
    module CopyOnWrite
      # Less than this of Ruby's heap is never worth a sentence, nor less than this percentage of RSS.
      LEAST_BYTES = 8 << 20
      LEAST_SHARE = 15
      HEAP = %i[ruby_heap_live ruby_heap_free].freeze
      MALLOC = %i[malloc_ruby_objects malloc_iseqs malloc_internal malloc_native malloc_free].freeze
      private_constant :HEAP, :MALLOC

      # @param account [Account]
      # @return [String, nil]
      def self.sentence(account)
        details = account[:ruby_heap_live].details
        heap, malloc = [HEAP, MALLOC].map { |names| own(account, names) }
        return if heap.nil? || heap < LEAST_BYTES || heap * 100 < LEAST_SHARE * account.rss
        return unless known?(account) || account.shares?

        "#{Units.share(heap, account.rss)} of #{Units.bytes(account.rss)} is Ruby's heap in pages of this process " \
          "alone (#{Units.bytes(heap)}; malloc: #{Units.bytes(malloc.to_i)}). #{cause(details)} #{REMEDY}"
      end

      # @param account [Account]
      # @return [Boolean] whether it is known what the parent had at the fork
      def self.known?(account) = !account[:ruby_heap_live].details[:at_fork].nil?

      REMEDY = "Make objects old, and free garbage, before the fork: Process.warmup (Ruby 3.3), or GC.start four times."

      def self.own(account, names)
        bytes = names.map { |name| account[name].private_bytes }
        bytes.sum if bytes.all?
      end
      private_class_method :own

      # A slot is written when its object becomes older and when it is freed.
      def self.cause(details)
        young = details[:at_fork] && (details[:at_fork][:live_objects] - details[:at_fork][:old_objects])
        pages = details[:own_pages]
        of_pages = pages && "#{Units.count(pages[:pages])} of #{Units.counted(pages[:heap_pages], 'page')}, " \
                            "#{Units.count(pages[:with_free_slots])} of them with free slots"
        return "These were shared at the fork unless they were made since#{": #{of_pages}" if of_pages}." unless young

        "They were shared at the fork, when #{Units.counted(young, 'object')} were young or garbage: the collector " \
          "has aged or freed them since, and writes to the slot of each#{" (#{of_pages})" if of_pages}."
      end
      private_class_method :cause
    end
  end
end
