# frozen_string_literal: true

require_relative "../../malloc/totals"
require_relative "change"
require_relative "../../support/json_text"

module Memintro
  class Diff
    # Compares what two snapshots say of malloc: the totals and the call sites, estimates with their standard errors.
    # If both tracked objects, also the objects of each call site.
    class Malloc
      # Figures of a call site that are compared, each with two counters that only grow: blocks allocated and blocks
      # freed.
      LIVE = { live_bytes: %i[total_bytes freed_bytes], live_blocks: %i[allocations frees] }.freeze
      # The same of a call site's blocks and objects, and of its objects alone.
      RETAINED = { retained_bytes: LIVE[:live_bytes], live_objects: [] }.freeze
      # See {RETAINED}.
      OBJECTS = { object_bytes: [], live_objects: [] }.freeze
      # The same of the totals.
      TOTAL = { live_bytes: %i[allocated_bytes freed_bytes], live_blocks: %i[allocations frees] }.freeze
      # Names of a site's figures in {Change}.
      BYTES = %i[before after growth].freeze
      # See {BYTES}.
      COUNTS = %i[count_before count_after count_growth].freeze
      private_constant :LIVE, :RETAINED, :OBJECTS, :TOTAL, :BYTES, :COUNTS

      # @param earlier [Snapshot]
      # @param later [Snapshot]
      def initialize(earlier, later)
        @earlier = earlier
        @later = later
        # If so, both are sums over one sample, and the later one has more of it.
        @same_sample = %i[pid started epoch].all? { |name| earlier.process[name] == later.process[name] }
      end

      # @return [Hash{Symbol => Array<Change>, nil}] as {Sections.compare} has them
      def sections
        return {} unless @earlier.tracked? && @later.tracked?

        malloc = { malloc: totals(@earlier.totals, @later.totals), call_sites: call_sites(LIVE) }
        return malloc unless both_track_objects?

        { retained: call_sites(RETAINED), object_sites: call_sites(OBJECTS), **malloc }
      end

      private

      # With few objects, none may have been drawn.
      def both_track_objects?
        earlier, later = [@earlier, @later].map { |snapshot| snapshot.call_sites.select(&:object_row) }
        later.any? && (earlier.any? || (@same_sample && later.any?(&:sampled_objects?)))
      end

      def totals(old, new)
        Totals::ATTRIBUTES.map do |name|
          Change.new(name.to_s, Sections.unit(name), old[name], new[name],
                     variances: variances(name, old, new), per_sample: per_sample([[name, BYTES]], [old], [new]))
        end
      end

      def greatest(all, name)
        known = all.select { |one| one.estimated? && one.class::ESTIMATES.include?(name) }
        known.map { |one| one.per_sample(name) }.max || 0.0
      end

      # @param figures [Array(Symbol, Array<Symbol>)] each with what {Change} calls it before, after, and what came
      # @return [Hash{Symbol => Float}] how much of each one sampled block stands for
      def per_sample(figures, old, new)
        figures.reduce({}) do |found, (name, names)|
          before, after = [old, new].map { |all| greatest(all, name) }
          found.merge(names.zip([before, after, [before, after].max]).to_h)
        end
      end

      def variances(name, old, new)
        return unless Totals::ESTIMATES.include?(name) && (old.estimated? || new.estimated?)

        before, after = [old, new].map { |one| one.variance(name) }
        BYTES.zip([before, after, growth(before, after, *flows(name, old, new))]).to_h
      end

      # @return [Array<Float>] variances of what came and of what went in between
      def flows(name, old, new)
        TOTAL.fetch(name, [name]).map { |flow| new.variance(flow) - old.variance(flow) }
      end

      # @return [Float] the variance of a growth, or a bound that it is not above
      def growth(before, after, *flows)
        return before + after unless @same_sample

        # The snapshot given as the later one may be the older one.
        [before + after, flows.sum.abs].min
      end

      # @param figures [Hash{Symbol => Array<Symbol>}] bytes and count, see {LIVE}
      def call_sites(figures)
        old = sites(@earlier)
        new = sites(@later)
        floors = [@earlier, @later].map { |snapshot| floor(snapshot) }
        (old.keys | new.keys).filter_map { |name| site(figures, name, old[name], new[name], *floors) }
      end

      # Two native callers can have one name.
      def sites(snapshot)
        snapshot.call_sites.group_by { |site| JsonText.normal(site.name) }
      end

      # If a list was cut, a site that is not in it had at most as much as its last site: lists are sorted by
      # `retained_bytes`, which are live bytes where no object is tracked.
      def floor(snapshot)
        snapshot.call_sites_left_out.positive? ? [snapshot.call_sites.last&.retained_bytes.to_i, 0].max : 0
      end

      def site(figures, name, old, new, old_floor, new_floor)
        known = { variances: site_variances(figures, old || [], new || []),
                  per_sample: per_sample(figures.keys.zip([BYTES, COUNTS]), old || [], new || []) }
        bytes, counts = figures.keys.map { |figure| [old, new].map { |sites| sites&.sum(&figure) } }
        floor = old ? new_floor : old_floor
        if (old && new) || floor.zero?
          Change.new(name, :bytes, bytes[0] || 0, bytes[1] || 0, count_before: counts[0] || 0,
                                                                 count_after: counts[1] || 0, **known)
        else
          at_least(name, bytes, floor, known)
        end
      end

      def at_least(name, bytes, floor, known)
        before, after = bytes.map { |amount| amount || [floor, *bytes.compact].min }
        Change.new(name, :bytes, before, after, at_least: true, **known) unless before == after
      end

      def site_variances(figures, old, new)
        sampled = [*old, *new].any?(&:sampled_objects?) && figures != LIVE
        return unless sampled || (figures != OBJECTS && [*old, *new].any?(&:sampled_blocks?))

        figures.zip([BYTES, COUNTS]).reduce({}) do |found, ((name, flows), names)|
          before, after = [old, new].map { |sites| sum(sites, name) }
          # Objects that came and went are not distinguished here.
          between = sampled || flows.empty? ? [before + after] : flows.map { |flow| sum(new, flow) - sum(old, flow) }
          found.merge(names.zip([before, after, growth(before, after, *between)]).to_h)
        end
      end

      def sum(sites, name)
        sites.sum { |site| site.variance(name) }
      end
    end
  end
end
