# frozen_string_literal: true

require_relative "../malloc/call_sites"
require_relative "../malloc/reader"

module Memintro
  module Control
    # Adds up JSON reports of several processes: the figures of a call site are summed over all of them. Workers that
    # were forked from one master run the same lines.
    #
    # The variances of estimates are added, because each process draws its own sample: the standard error is the root
    # of the sum of squares. Blocks that were allocated before the fork are in the same sample of every worker; if there
    # are many of them, the true error is larger.
    module WorkerReports
      # @param reports [Array<Hash>] parsed, the master's first
      # @return [CallSites] of all together
      # @raise [DumpError] if one is no report
      def self.sum(reports)
        members = reports.map { |report| CallSites::Reader.from_json(report) }
        totals = totals(members.map(&:totals))
        process = process(members)
        CallSites.new(totals, rows(members), process, nil, stacks(members, totals, process))
      end

      # In a process without whole stacks, each line is a stack of its own.
      def self.stacks(members, totals, process)
        return if members.none?(&:stacks)

        CallSites.new(totals, rows(members.map { |member| member.stacks || member }), process)
      end
      private_class_method :stacks

      def self.rows(members)
        found = {}
        members.flat_map(&:rows).each do |row|
          key = row.values_at(SiteRow::KIND, SiteRow::NAME, SiteRow::LINENO, SiteRow::STACK)
          found[key] = found.key?(key) ? add(found[key], row) : row
        end
        found.values.each_with_index.map { |row, id| row.dup.tap { |copy| copy[SiteRow::ID] = id } }
      end
      private_class_method :rows

      # The mean lifespan is computed from these sums; means cannot be added up.
      def self.add(one, other)
        one.each_with_index.map do |value, at|
          case at
          when SiteRow::ID..SiteRow::LINENO, SiteRow::STACK then value
          when *SiteRow::MAXIMA then [value, other[at]].max
          when SiteRow::VARIANCES then added(value, other[at])
          when SiteRow::OLD then value && other[at] && summed(value, other[at])
          when SiteRow::OBJECTS then added(value, other[at])
          when SiteRow::NATIVE_CALLERS then more_sampled(value, other[at])
          else value + other[at]
          end
        end
      end
      private_class_method :add

      # Those of the process that has more samples: shares of different processes cannot be added up.
      def self.more_sampled(*callers) = callers.compact.max_by { |found| found[SiteRow::CALLER_SAMPLES] }
      private_class_method :more_sampled

      def self.summed(one, other)
        Array.new([one, other].map(&:size).max) { |at| (one[at] || 0) + (other[at] || 0) }
      end
      private_class_method :summed

      # Exact figures add no variance, and a process that tracks no objects adds none.
      def self.added(one, other)
        one && other ? summed(one, other) : one || other
      end
      private_class_method :added

      def self.totals(all)
        sums = Figures::OF_PROCESS.map { |name| all.sum(&name) }
        return Totals.new(*sums) unless all.any?(&:estimated?)

        doubts = %i[variance skew].flat_map do |kind|
          Figures::OF_PROCESS_ESTIMATED.map { |name| all.sum { |one| one.public_send(kind, name) } }
        end
        Totals.new(*sums, doubts)
      end
      private_class_method :totals

      # Has the name of the first process; mode and the like are of those that track.
      def self.process(members)
        all = members.map(&:process)
        tracking = all.select { |one| one[:tracking] }
        modes = tracking.map { |one| one[:mode].to_s }.uniq
        means = members.select { |one| one.totals.estimated? }.map { |one| one.process[:sample_bytes] }.uniq
        { **all.first.except(:rss_bytes), processes: all.size, tracking: !tracking.empty?,
                                          mode: modes.size > 1 ? "mixed" : modes.first || all.first[:mode],
                                          preloaded: (tracking.empty? ? all.first(1) : tracking).all? { |one|
                                                       one[:preloaded]
                                                     },
                                          sample_bytes: means.size == 1 ? means.first : nil }.compact
      end
      private_class_method :process
    end
  end
end
