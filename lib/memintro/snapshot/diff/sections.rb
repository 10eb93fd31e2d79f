# frozen_string_literal: true

require_relative "../../support/list"
require_relative "change"
require_relative "malloc"

module Memintro
  class Diff
    # Compares two snapshots, list by list.
    module Sections
      # Every list of changes, and its title.
      TITLES = { memory: "process memory", account: "resident memory by what it is for",
                 account_private: "of this, in pages that no other process has",
                 types: "objects by type", classes: "objects by class",
                 iseqs: "instruction sequences by file", iseq_locations: "instruction sequences by line",
                 internals: "internal objects by kind", retained: "malloc and tracked objects by call site",
                 object_sites: "tracked objects by call site", malloc: "malloc, all of the process",
                 call_sites: "malloc by call site", occupancy: "heap pages", gc: "GC counters",
                 gc_heaps: "GC by size pool" }.freeze
      # The kind of names in a list; the names of all other lists are counters.
      LAST = { memory: "memory", account: "row", account_private: "row",
               types: "type", classes: "class", iseqs: "file", iseq_locations: "line",
               internals: "kind", retained: "call site", object_sites: "call site", call_sites: "call site" }.freeze

      # So much besides files is shared where a process was forked, or has forked.
      LEAST_SHARED = 1 << 20
      private_constant :LEAST_SHARED

      # @param earlier [Snapshot]
      # @param later [Snapshot]
      # @return [Hash{Symbol => List<Change>}] changed figures that both snapshots have, greatest growth first
      def self.compare(earlier, later)
        found = {
          memory: numbers(memory(earlier), memory(later)), account: account(earlier.account, later.account),
          account_private: own(earlier, later),
          types: rows(earlier.types, later.types), classes: rows(earlier.classes, later.classes),
          iseqs: iseqs(earlier, later, :paths),
          iseq_locations: iseqs(earlier, later, :locations), internals: rows(earlier.internals, later.internals),
          **Malloc.new(earlier, later).sections,
          occupancy: numbers(flat(earlier.occupancy), flat(later.occupancy)), gc: numbers(earlier.gc, later.gc),
          gc_heaps: numbers(flat(earlier.gc_heaps), flat(later.gc_heaps))
        }
        found.compact.transform_values { |changes| sorted(changes) }
      end

      # @param name [String, Symbol] of a counter
      # @return [Symbol] its unit
      def self.unit(name)
        case name.to_s
        when /(?:\A|[ _])time\z/, /_ms\z/ then :ms
        when /bytes/ then :bytes
        else :count
        end
      end

      # @param snapshot [Snapshot]
      # @return [Hash{Symbol => Integer}] of the process and its control group
      def self.memory(snapshot)
        group = snapshot.cgroup.to_h.select { |_, value| value.is_a?(Integer) }
        { **snapshot.memory, **group.transform_keys { |name| :"cgroup #{name}" } }
      end

      def self.account(before, after)
        return unless before && after

        (before.keys & after.keys).map { |name| Change.new(name.to_s, :bytes, before[name], after[name]) }
      end
      private_class_method :account

      # Without a fork, all but files is private: the rows would say the same once more.
      def self.own(earlier, later)
        shared = [earlier, later].map { |snapshot| shared_bytes(snapshot) }
        account(earlier.account_private, later.account_private) if shared.all? && shared.max >= LEAST_SHARED
      end
      private_class_method :own

      def self.shared_bytes(snapshot)
        own = snapshot.account_private or return
        all = snapshot.account.to_h
        own.sum { |name, bytes| name == :mapped_files ? 0 : all.fetch(name, bytes) - bytes }
      end
      private_class_method :shared_bytes

      # Nested counters by their whole path.
      def self.flat(hash, prefix = "")
        hash&.each_with_object({}) do |(key, value), found|
          found.merge!(flat(value, "#{prefix}#{key} ")) if value.is_a?(Hash)
          found["#{prefix}#{key}"] = value if value.is_a?(Numeric)
        end
      end
      private_class_method :flat

      def self.iseqs(earlier, later, list)
        rows(earlier.iseqs[list], later.iseqs[list]) if earlier.iseqs && later.iseqs
      end
      private_class_method :iseqs

      def self.numbers(before, after)
        return unless before && after

        (before.keys & after.keys).filter_map do |name|
          next unless before[name].is_a?(Numeric) && after[name].is_a?(Numeric)

          Change.new(name.to_s, unit(name), before[name], after[name])
        end
      end
      private_class_method :numbers

      def self.rows(before, after)
        return unless before && after

        old = before.to_h { |row| [row.name, row] }
        changes = after.map { |row| change(row.name, old.delete(row.name), row) }
        changes.concat(old.values.map { |row| change(row.name, row, nil) })
      end
      private_class_method :rows

      def self.change(name, old, new)
        if (new || old).bytes
          Change.new(name, :bytes, old&.bytes || 0, new&.bytes || 0, count_before: old&.count || 0,
                                                                     count_after: new&.count || 0)
        else
          Change.new(name, :count, old&.count || 0, new&.count || 0)
        end
      end
      private_class_method :change

      def self.sorted(changes)
        List.new(changes.reject(&:none?).sort_by do |change|
          [-change.growth, -(change.count_growth || 0), change.name.b]
        end)
      end
      private_class_method :sorted
    end
  end
end
