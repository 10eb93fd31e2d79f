# frozen_string_literal: true

require_relative "../support/list"

module Memintro
  # Implements the methods of {HeapFigures}. Loaded with the first of them.
  # @api private
  module HeapWalks
    # Figures of 2,000 iseqs, four for each; other threads may run after each slice.
    FIGURES_A_SLICE = 4 * 2000
    private_constant :FIGURES_A_SLICE

    # @return [IseqTotals]
    def self.iseqs
      Memintro.untracked { IseqTotals.new(*Native.iseqs) }
    end

    # @yieldparam iseq [Iseq]
    # @return [nil]
    def self.each_iseq
      texts = []
      figures = []
      Memintro.untracked do
        Native.iseq_list { |slice| next_slice(slice.first.is_a?(String) ? texts : figures).concat(slice) }
      end
      (0...figures.size).step(FIGURES_A_SLICE) do |start|
        Thread.pass if start.positive?
        slice = Memintro.untracked do
          figures[start, FIGURES_A_SLICE].each_slice(4).map do |path, lineno, label, bytes|
            Iseq.new(texts[path], lineno, texts[label], bytes)
          end
        end
        slice.each { |iseq| yield iseq }
      end
      nil
    end

    # @return [List<IseqGroup>]
    def self.top_iseqs(count, by)
      for_rows { |rows| Native.iseq_groups(by, count) { |slice| add(rows, IseqGroup, slice) } }
    end

    # @return [List<InternalRow>]
    def self.internals
      for_rows { |rows| Native.internals { |slice| add(rows, InternalRow, slice.map { |row| row.first(3) }) } }
    end

    # @return [List<HistogramRow>]
    def self.histogram(count, by_count)
      for_rows { |rows| Native.histogram(by_count, count) { |slice| add(rows, HistogramRow, slice) } }
    end

    # @return [Array(Occupancy, Hash{Symbol => Integer})] with `GC.stat` of the same instant
    def self.occupancy_and_counters
      Memintro.untracked do
        holders = []
        # In the form of the extension's call: Ruby 3.4 makes an object at the first such call, which must not be
        # between the two.
        counters = GC.stat
        GC.public_send(:stat, counters)
        pools = Native.occupancy(counters) { |slice| add(holders, Occupancy::Holder, slice) }
        empty = pools.sum(&:last) + counters.slice(:heap_tomb_pages, :heap_empty_pages).sum(&:last)
        pools = pools.map { |pool| Occupancy::Pool.new(*pool.first(6)) }
        [Occupancy.new(List.new(pools), List.new(holders), empty), counters]
      end
    end

    # The extension adds rows in the block.
    def self.for_rows
      rows = []
      Memintro.untracked { yield rows }
      Memintro.untracked { List.new(rows) }
    end
    private_class_method :for_rows

    def self.add(rows, kind, slice)
      next_slice(rows)
      slice.each { |row| rows << kind.new(*row) }
    end
    private_class_method :add

    # Lets other threads run before each slice but the first.
    def self.next_slice(made)
      Thread.pass unless made.empty?
      made
    end
    private_class_method :next_slice
  end
end
