# frozen_string_literal: true

require_relative "../malloc/call_sites"
require_relative "../malloc/reader"

module Memintro
  module Control
    # JSON reports of several processes, made into one: a call site's figures are summed up over all of them. Workers
    # that were forked from one master run the same lines.
    #
    # Of estimates the variances are summed up, for each process draws its own sample: the standard error is the root of
    # the sum of squares. Of blocks that workers were forked with all have the same sample; where these are many, the
    # sum is less sure than it says.
    module WorkerReports
      # Figures that {Totals.new} takes, in its order; the first have variances.
      TOTALS = %i[allocated_bytes freed_bytes allocations frees missed_frees tracker_bytes dropped].freeze
      # How many.
      ESTIMATES = 4
      private_constant :TOTALS, :ESTIMATES

      # @param reports [Array<Hash>] parsed, the master's first
      # @return [CallSites] of all together
      # @raise [DumpError] if one is no report
      def self.sum(reports)
        members = reports.map { |report| CallSites::Reader.from_json(report) }
        CallSites.new(totals(members.map(&:totals)), rows(members), process(members))
      end

      def self.rows(members)
        found = {}
        members.flat_map(&:rows).each do |row|
          key = row.values_at(SiteRow::KIND, SiteRow::NAME, SiteRow::LINENO)
          found[key] = found.key?(key) ? add(found[key], row) : row
        end
        found.values.each_with_index.map { |row, id| row.dup.tap { |copy| copy[SiteRow::ID] = id } }
      end
      private_class_method :rows

      # A mean lifespan is made of these sums afterwards: nobody adds up means.
      def self.add(one, other)
        one.each_with_index.map do |value, at|
          case at
          when SiteRow::ID..SiteRow::LINENO then value
          when SiteRow::MAX_LIFESPAN then [value, other[at]].max
          when SiteRow::VARIANCES then added(value, other[at])
          when SiteRow::OLD then value && other[at] && summed(value, other[at])
          else value + other[at]
          end
        end
      end
      private_class_method :add

      def self.summed(one, other)
        Array.new([one, other].map(&:size).max) { |at| (one[at] || 0) + (other[at] || 0) }
      end
      private_class_method :summed

      # What is exact adds nothing.
      def self.added(one, other)
        one && other ? one.zip(other).map(&:sum) : one || other
      end
      private_class_method :added

      def self.totals(all)
        sums = TOTALS.map { |name| all.sum(&name) }
        return Totals.new(*sums) unless all.any?(&:estimated?)

        doubts = %i[variance skew].flat_map do |kind|
          TOTALS.first(ESTIMATES).map { |name| all.sum { |one| one.public_send(kind, name) } }
        end
        Totals.new(*sums, doubts)
      end
      private_class_method :totals

      # Named after the first; how the figures were got is said of those that track.
      def self.process(members)
        all = members.map(&:process)
        tracking = all.select { |one| one[:tracking] }
        modes = tracking.map { |one| one[:mode].to_s }.uniq
        means = members.select { |one| one.totals.estimated? }.map { |one| one.process[:sample_bytes] }.uniq
        { **all.first, processes: all.size, tracking: !tracking.empty?,
                       mode: modes.size > 1 ? "mixed" : modes.first || all.first[:mode],
                       preloaded: (tracking.empty? ? all.first(1) : tracking).all? { |one| one[:preloaded] },
                       sample_bytes: means.size == 1 ? means.first : nil }.compact
      end
      private_class_method :process
    end
  end
end
