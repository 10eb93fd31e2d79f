# frozen_string_literal: true

require_relative "../../support/names"
require_relative "../../support/units"

module Memintro
  class Account
    # What the rows mean, in words. docs/account.md explains each threshold.
    # @api private
    module Verdict
      # Less than this is never worth a sentence.
      LEAST_BYTES = 8 << 20
      # Rows, and the percentage of RSS from which each deserves a sentence.
      THRESHOLDS = {
        malloc_free: 20, ruby_heap_free: 20, malloc_native: 30, anonymous: 30, mapped_files: 40, malloc_iseqs: 20,
        malloc_internal: 20, malloc_ruby_objects: 30, ruby_heap_live: 30, thread_stacks: 15, memintro: 15,
        unattributed: 5
      }.freeze
      # More arenas than this are many.
      MANY_ARENAS = 4

      # @param account [Account]
      # @return [Array<String>] sentences, that of the largest row first
      def self.of(account)
        rows = account.rows.select do |row|
          row.bytes >= LEAST_BYTES && row.bytes * 100 >= THRESHOLDS.fetch(row.name, 101) * account.rss
        end
        found = rows.sort_by { |row| -row.bytes }.map { |row| sentence(row, account.rss) }
        found.empty? ? [nothing(account)] : found
      end

      # @param diff [Account::Difference]
      # @return [Array<String>]
      def self.of_growth(diff)
        largest = diff.rows.max_by(&:bytes)
        growth = diff.rss
        return ["RSS has not grown (#{Units.signed_bytes(growth)})."] if growth <= 0 || largest.bytes <= 0

        ["RSS has grown by #{Units.bytes(growth)}; #{largest.name} has grown most, by #{Units.bytes(largest.bytes)}: " \
         "#{MEANINGS.fetch(largest.name)}."]
      end

      # What each row is, for a sentence.
      MEANINGS = {
        ruby_heap_live: "slots of live Ruby objects", ruby_heap_free: "free slots on pages of Ruby's heap",
        malloc_ruby_objects: "memory that Ruby objects own", malloc_iseqs: "compiled Ruby code",
        malloc_internal: "internal objects of Ruby's VM", malloc_native: "malloc memory that no Ruby object owns",
        malloc_free: "memory that malloc has free but keeps", thread_stacks: "stacks of threads and fibers",
        mapped_files: "pages of mapped files and libraries", anonymous: "memory mapped past malloc",
        memintro: "memintro's own memory", unattributed: "memory that could not be attributed"
      }.freeze

      def self.sentence(row, rss)
        "#{Units.share(row.bytes, rss)} of #{Units.bytes(rss)} is #{MEANINGS.fetch(row.name)}: #{advice(row)}"
      end
      private_class_method :sentence

      def self.advice(row)
        case row.name
        when :malloc_free then fragmentation(row)
        when :ruby_heap_free
          "few objects survive on many pages. Memintro.occupancy names their classes; Memintro.trim(compact: true) " \
          "may help."
        when :malloc_native then native(row)
        when :anonymous then "a native library or a JIT compiler has mapped it. Look at its own statistics."
        when :mapped_files then "#{largest_file(row)}The kernel takes unchanged pages back when it needs memory."
        when :malloc_iseqs
          "the program's own code and that of its gems; where it grows, methods or blocks are made at run time. " \
          "Memintro.top_iseqs(by: :location) names the lines."
        when :malloc_internal then "Memintro.internals lists their kinds."
        when :malloc_ruby_objects then "#{largest_type(row)}Memintro.histogram names the classes."
        when :ruby_heap_live then "Memintro.histogram(by: :count) names the classes."
        when :thread_stacks then "#{row.details.dig(:threads, :count)} thread stacks. Use fewer threads, or end them."
        when :memintro then "its tables. Sampled mode takes less."
        else "another library's memory manager, or damage; see the notes."
        end
      end
      private_class_method :advice

      def self.fragmentation(row)
        arenas = row.details[:arenas].to_i
        return "fragmentation. Memintro.trim gives back what it can." unless row.details[:allocator] == "glibc"

        many = arenas > MANY_ARENAS ? "#{arenas} arenas; MALLOC_ARENA_MAX=2 or jemalloc helps" : "Jemalloc may help"
        "fragmentation. #{many}; Memintro.trim gives back about #{Units.bytes(row.details[:trimmable_bytes].to_i)}."
      end
      private_class_method :fragmentation

      def self.native(row)
        return told(row, "a leak in C code, or a library's cache.") unless row.details[:free_told_apart] == false

        told(row, "free memory that the allocator does not tell apart, a leak in C code, or a library's cache. " \
                  "Memintro.trim, and another account, tell the first from the others.")
      end
      private_class_method :native

      def self.told(row, causes)
        largest = Array(row.details[:call_sites]).first
        if largest
          what = row.details[:call_sites_of] == "all rows" ? "Of all that was followed" : "Of what was followed"
          return "#{causes} #{what}, most is live at " \
                 "#{Names.printable(largest[:name])} (#{Units.bytes(largest[:live_bytes])})."
        end

        "#{causes} Memintro.start, work, and Memintro.top name the lines that ask for it."
      end
      private_class_method :told

      def self.largest_type(row)
        largest = Array(row.details[:types]).first
        largest ? "most by #{largest[:name]} (#{Units.bytes(largest[:bytes])}). " : ""
      end
      private_class_method :largest_type

      def self.largest_file(row)
        largest = Array(row.details[:files]).first
        largest ? "most of #{Names.printable(largest[:name])} (#{Units.bytes(largest[:bytes])}). " : ""
      end
      private_class_method :largest_file

      def self.nothing(account)
        row = account.rows.max_by(&:bytes)
        "Nothing stands out in #{Units.bytes(account.rss)}: the largest part, " \
          "#{Units.share(row.bytes, account.rss)}, is #{MEANINGS.fetch(row.name)}."
      end
      private_class_method :nothing
    end
  end
end
