# frozen_string_literal: true

require_relative "../malloc/call_site"

module Memintro
  module Report
    # Stacks and their bytes, as reports of whole stacks need them: each frame once, and a row for each stack.
    # @api private
    class StackTable
      # What a row has after its frames. The first three are malloc's, the others those of slots.
      FIGURES = %i[live_bytes total_bytes growth_bytes object_bytes object_total_bytes object_growth_bytes].freeze
      # Where a row has the variances of these, if some are estimates.
      VARIANCES = FIGURES.size + 1
      # For a row's objects: variances of the slots' bytes that came and went.
      SLOTS = %i[total_bytes_variance freed_bytes_variance].map do |name|
        SiteRow::OBJECT_VARIANCES + SiteRow::OBJECT_DOUBTS.index(name)
      end.freeze
      private_constant :SLOTS

      # A site without a stack is a stack of one frame.
      #
      # @param sites [#each] of {CallSite}
      # @return [StackTable]
      def self.from_sites(sites)
        new.tap { |table| sites.each { |site| table.add(site) } }
      end

      # @return [Array<Array(String, Integer, String)>] path, line and label; the label may be nil, and the line is 0
      #   where there is none
      attr_reader :frames

      # @return [Array<Array>] indices of the frames, root first, and {FIGURES}; of estimates also their variances
      attr_reader :rows

      def initialize
        @frames = []
        @rows = []
        @known = {}
      end

      # @param site [CallSite]
      # @return [nil]
      def add(site)
        row = [stack_of(site), site.live_bytes, site.total_bytes, site.growth, *objects_of(site)]
        row << variances(site) if site.estimated?
        @rows << row
        nil
      end

      # @param site [CallSite]
      # @return [Array<Array(String, Integer, String)>] its frames, root first
      def self.frames_of(site)
        stack = site.stack if site.respond_to?(:stack)
        return [[site.path || site.name, site.lineno || 0, nil]] if stack.nil? || stack.empty?

        stack.reverse.map { |frame| [frame.path, frame.line || 0, frame.label] }
      end

      private

      # What objects were made since the mark has no variance of its own; it is not above that of all that were made.
      def variances(site)
        slots = site.sampled_objects? ? site.object_row.values_at(*SLOTS) : [0.0, 0.0]
        [*%i[live_bytes total_bytes growth].map { |name| site.variance(name) },
         site.variance(:object_bytes), slots[0], slots.sum]
      end

      def stack_of(site)
        self.class.frames_of(site).map { |path, line, label| index(path, line, label) }
      end

      def index(path, line, label)
        frame = [path, line, label]
        @known[frame] ||= @frames.push(frame).size - 1
      end

      def objects_of(site)
        row = site.object_row
        return [0, 0, 0] unless row

        live = row[SiteRow::OBJECT_TOTAL_BYTES] - row[SiteRow::OBJECT_FREED_BYTES]
        [live, row[SiteRow::OBJECT_TOTAL_BYTES], live - row[SiteRow::OBJECT_MARKED_BYTES]]
      end
    end
  end
end
