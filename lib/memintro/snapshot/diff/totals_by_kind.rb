# frozen_string_literal: true

require_relative "../../support/list"
require_relative "change"

module Memintro
  class Diff
    # The growth of each kind of memory in total. Kinds overlap: the bytes of instruction sequences are also bytes of
    # malloc.
    module TotalsByKind
      # The lists that the kinds sum up, and the names of the kinds.
      NAMES = { call_sites: "malloc", iseqs: "instruction sequences", classes: "objects",
                internals: "internal objects", object_sites: "tracked objects" }.freeze

      # @param earlier [Snapshot]
      # @param later [Snapshot]
      # @param sections [Hash{Symbol => List<Change>}] the changes
      # @return [List<Change>] those that both snapshots have, greatest growth first
      def self.compare(earlier, later, sections)
        kinds = [malloc(sections), iseqs(earlier, later), *objects(earlier, later), tracked(sections)].compact
        List.new(kinds.sort_by { |change| [-change.growth, change.name] })
      end

      # @param kind [String] name of a kind
      # @param change [Change] a row of its list
      # @param iseqs [Boolean] whether there is a list of instruction sequences
      # @return [Boolean] whether the row is part of the kind's sum, so that nothing is counted twice
      def self.counts?(kind, change, iseqs:)
        case kind
        when NAMES[:classes] then !change.name.start_with?("imemo_")
        when NAMES[:internals] then !(iseqs && change.name == "imemo_iseq")
        else true
        end
      end

      # Uses the totals of the process, because the list of sites may have been cut.
      def self.malloc(sections)
        bytes, blocks = %w[live_bytes live_blocks].map do |name|
          sections[:malloc].to_a.find { |change| change.name == name }
        end
        return unless bytes

        Change.new(NAMES[:call_sites], :bytes, bytes.before, bytes.after,
                   count_before: blocks ? blocks.before : 0, count_after: blocks ? blocks.after : 0,
                   variances: variances(bytes, blocks))
      end
      private_class_method :malloc

      def self.variances(bytes, blocks)
        return unless bytes.estimated? || blocks&.estimated?

        names = %i[before after growth]
        { **names.to_h { |name| [name, bytes.variance(name)] },
          **%i[count_before count_after count_growth].zip(names).to_h do |count, name|
            [count, blocks ? blocks.variance(name) : 0.0]
          end }
      end
      private_class_method :variances

      def self.iseqs(earlier, later)
        old, new = earlier.iseqs, later.iseqs
        return unless old && new

        Change.new(NAMES[:iseqs], :bytes, old[:bytes], new[:bytes], count_before: old[:count], count_after: new[:count])
      end
      private_class_method :iseqs

      def self.objects(earlier, later)
        iseqs = earlier.iseqs && later.iseqs
        %i[classes internals].filter_map do |list|
          rows = [earlier, later].map do |snapshot|
            snapshot[list]&.select { |row| counts?(NAMES[list], row, iseqs: iseqs) }
          end
          sum(NAMES[list], *rows) if rows.all?
        end
      end
      private_class_method :objects

      def self.tracked(sections)
        changes = sections[:object_sites] or return
        Change.sum(NAMES[:object_sites], changes)
      end
      private_class_method :tracked

      def self.sum(name, before, after)
        Change.new(name, :bytes, before.sum { |row| row.bytes.to_i }, after.sum { |row| row.bytes.to_i },
                   count_before: before.sum(&:count), count_after: after.sum(&:count))
      end
      private_class_method :sum
    end
  end
end
