# frozen_string_literal: true

require_relative "../support/arguments"
require_relative "../error"
require_relative "../support/list"

module Memintro
  # What is in Ruby's own heap, memintro's own objects too. {Memintro} is extended with it.
  #
  # Each of these methods walks over the whole heap once. Meanwhile no other Ruby thread runs, and a collection that is
  # under way is finished first. What is garbage but not collected yet is counted; call `GC.start` before to be rid
  # of it. The answer is sorted without Ruby's lock, and after every 2,000 rows that are made of it, threads that
  # wait have their turn (as long as Ruby gives them: 100 ms each, if they compute). Costs are for a million objects on
  # a machine of 2026. No tracking is needed for any of them.
  #
  # All raise {RactorError} while there is more than one Ractor: the others would change the heap under the walk. A
  # child that is forked meanwhile has one, and answers on Ruby 3.1; on 3.3 and 3.4 Ruby's own collector crashes in such
  # a child, with memintro and without.
  module HeapFigures
    # Four figures an iseq, so many iseqs made before other threads have their turn.
    FIGURES_A_SLICE = 4 * 2000
    # Loaded together, before the first walk: one of them later would be more code, and count.
    ROWS = %i[HistogramRow InternalRow Iseq IseqGroup IseqTotals Occupancy].freeze
    private_constant :FIGURES_A_SLICE, :ROWS

    # Instruction sequences, the compiled code of every method, block, class body and file. `ObjectSpace` can only see
    # them through a wrapper object for each; this makes none. 5 ms for a million objects.
    #
    # @return [IseqTotals]
    # @raise [RactorError, UnknownRubyError]
    # @example
    #   Memintro.iseqs.bytes  # => 69_734_104
    def iseqs
      walk_heap { IseqTotals.new(*Native.iseqs) }
    end

    # Visits every instruction sequence of one instant. 5 ms for a million objects, and 3 µs for each sequence.
    #
    # @yieldparam iseq [Iseq]
    # @return [nil, Enumerator] an enumerator without a block
    # @raise [RactorError, UnknownRubyError]
    # @example
    #   Memintro.each_iseq.max_by(&:bytes)
    def each_iseq
      return enum_for(:each_iseq) unless block_given?

      texts = []
      figures = []
      walk_heap do
        Native.iseq_list { |slice| next_slice(slice.first.is_a?(String) ? texts : figures).concat(slice) }
      end
      (0...figures.size).step(FIGURES_A_SLICE) do |start|
        Thread.pass if start.positive?
        slice = untracked do
          figures[start, FIGURES_A_SLICE].each_slice(4).map do |path, lineno, label, bytes|
            Iseq.new(texts[path], lineno, texts[label], bytes)
          end
        end
        slice.each { |iseq| yield iseq }
      end
      nil
    end

    # Where the bytes of instruction sequences are. Methods that are generated from one line of code are one row by
    # `:location`, and those from one file by `:path`. 5 ms for a million objects, and up to 2 µs for each
    # sequence.
    #
    # @param n [Integer, nil] how many rows; nil: all
    # @param by [Symbol] `:path`; `:location`, which is `path:line`; or `:label`, the name of method or block
    # @return [List<IseqGroup>] most bytes first
    # @raise [ArgumentError, TypeError]
    # @raise [RactorError, UnknownRubyError]
    # @example
    #   Memintro.top_iseqs(1, by: :location).first  # => #<Memintro::IseqGroup /app/big.rb:12: 10,000, 14.5 MiB>
    def top_iseqs(n = 20, by: :path)
      Arguments.count(:n, n, optional: true)
      by = Arguments.choice(:by, by, %i[path location label])
      walk_for_rows { |rows| Native.iseq_groups(by, n) { |slice| add(rows, IseqGroup, slice) } }
    end

    # The VM's own objects by kind: instruction sequences, method entries, call caches and so on. 5 to 10 ms for a
    # million objects.
    #
    # @return [List<InternalRow>] most bytes first
    # @raise [RactorError, UnknownRubyError]
    def internals
      walk_for_rows { |rows| Native.internals { |slice| add(rows, InternalRow, slice.map { |row| row.first(3) }) } }
    end

    # All objects by class. Counts are those of `ObjectSpace.count_objects`; the bytes of the rows that are not internal
    # those of `ObjectSpace.memsize_of_all` (which on Ruby 3.1 counts what is called `(hidden …)` too). 15 to 20 ms
    # for a million objects, and 5 µs for each class.
    #
    # @param n [Integer, nil] how many rows; nil: all
    # @param by [Symbol] what to sort by, `:bytes` or `:count`
    # @return [List<HistogramRow>] greatest first
    # @raise [ArgumentError, TypeError]
    # @raise [RactorError, UnknownRubyError]
    # @example
    #   Memintro.histogram(3)
    #   Memintro.histogram.reject(&:internal?).sum(&:bytes)
    def histogram(n = nil, by: :bytes)
      Arguments.count(:n, n, optional: true)
      by_count = Arguments.choice(:by, by, %i[bytes count]) == :count
      walk_for_rows { |rows| Native.histogram(by_count, n) { |slice| add(rows, HistogramRow, slice) } }
    end

    # How full the heap's pages are, and what keeps those that are nearly empty: the answer to "why does Ruby not give
    # memory back". 5 ms for a million objects.
    #
    # Its `live_slots` are `GC.stat`'s `heap_live_slots` and `heap_final_slots` of the same instant. Asked one after the
    # other they differ: the walk finishes the collection that is under way, and whatever runs in between makes objects.
    #
    # @return [Occupancy]
    # @raise [RactorError, UnknownRubyError]
    # @example
    #   GC.start
    #   Memintro.occupancy.holders.first  # => #<Memintro::Occupancy::Holder String: 1,204 on 812 pages>
    def occupancy
      occupancy_and_counters.first
    end

    # @api private
    # @return [Array(Occupancy, Hash{Symbol => Integer})] and what `GC.stat` said at the same instant
    def occupancy_and_counters
      walk_heap do
        holders = []
        counters = GC.stat
        pools = Native.occupancy(counters) { |slice| add(holders, Occupancy::Holder, slice) }
        empty = pools.sum(&:last) + counters.slice(:heap_tomb_pages, :heap_empty_pages).sum(&:last)
        pools = pools.map { |pool| Occupancy::Pool.new(*pool.first(6)) }
        [Occupancy.new(List.new(pools), List.new(holders), empty), counters]
      end
    end

    # Under the lock of the only Ractor there is, nobody can start another one during a walk.
    # @api private
    # @return [nil]
    # @raise [RactorError] if there are several
    def self.only_ractor
      ractors = Ractor.count
      return if ractors == 1

      raise RactorError, "#{ractors} Ractors are alive, and memintro can read the heap only while there is one, " \
                         "because the others would change it; wait until they have ended"
    end

    private

    # The block has the extension add to the rows.
    def walk_for_rows
      rows = []
      walk_heap { yield rows }
      untracked { List.new(rows) }
    end

    def add(rows, kind, slice)
      next_slice(rows)
      slice.each { |row| rows << kind.new(*row) }
    end

    # Others have their turn before all slices but the first.
    def next_slice(made)
      Thread.pass unless made.empty?
      made
    end

    def walk_heap(&block)
      HeapFigures.only_ractor
      Loader.need(*ROWS)
      untracked(&block)
    end
  end
end
