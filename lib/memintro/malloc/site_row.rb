# frozen_string_literal: true

require_relative "../support/figures"

module Memintro
  # The columns of a call site's row, which is a plain Array because there may be a million of them. The extension makes
  # rows in this order (`Native::SITE_COLUMNS` has the same order), and all other code names columns by these constants.
  # @api private
  module SiteRow
    # Names of the columns. If the site is not a line of Ruby, `lineno` is 0 and `name` the whole name; otherwise `name`
    # is the path. `marked_bytes` were live at the mark. `variances` is nil if all is exact; `old` is nil if it is not
    # known. What these, `old` and `objects` hold of the errors of estimates is a variance and a skew for each figure,
    # which only the extension reads (Native.site_estimate).
    COLUMNS = [:id, :kind, :name, :lineno, *Figures::SUMS, *Figures::MAXIMA, :marked_bytes, :variances, :old, :objects,
               :native_callers].freeze
    # A constant for each: `ID`, `ALLOCATIONS` and so on.
    COLUMNS.each_with_index { |name, at| const_set(name.upcase, at) }
    # Further fields of rows of whole stacks: frozen arrays of path, line and label, the innermost first.
    STACK = COLUMNS.size
    # Fields of rows of whole stacks in JSON: these, without id and native callers.
    STACK_FIGURES = STACK - 1

    # What `native_callers` holds, which is nil where none is known: samples, live samples, and for each caller what
    # {NativeCaller} takes.
    CALLER_SAMPLES, CALLER_LIVE_SAMPLES, CALLERS = *0...3

    # The contents of `objects`, which is nil if no object was tracked. Bytes are those of slots.
    OBJECT_COLUMNS = Figures.names(Figures::OBJECTS, :sum, :exact, :old)
    OBJECT_ALLOCATIONS, OBJECT_FREES, OBJECT_TOTAL_BYTES, OBJECT_FREED_BYTES = *0...4

    # Its further fields if the objects are a sample; nil: a figure is exact.
    OBJECT_DOUBTS = OBJECT_COLUMNS.flat_map do |name|
      exact = Figures.names(Figures::OBJECTS, :exact).include?(name)
      exact ? [nil, nil] : [:"#{name}_variance", :"#{name}_skew"]
    end.freeze
    # The first fields of `old` and of the rows of Memintro::Native.live_by_site: bytes and blocks of some age.
    OLD_BYTES, OLD_BLOCKS = *0...2

    # The sums of several rows, none of which has what another has.
    #
    # @param rows [Array<Array>] at least one
    # @param kind [Symbol]
    # @param name [String]
    # @param lineno [Integer]
    # @return [Array] a row, with the id of the first one
    def self.sum(rows, kind, name, lineno = 0) = Native.sum_of_rows(rows, kind, name, lineno)

    # @return [Integer] live bytes; after `Mwrap.reset` frees can outweigh allocations
    def self.live_bytes(row) = row[TOTAL_BYTES] - row[FREED_BYTES]

    # @return [Integer]
    def self.live_blocks(row) = row[ALLOCATIONS] - row[FREES]

    # @return [Float] 0.0 where nothing was freed
    def self.mean_lifespan(row) = row[FREES].zero? ? 0.0 : row[AGE_TOTAL].fdiv(row[FREES])

    # @return [Integer] live bytes less those at the mark
    def self.growth(row) = live_bytes(row) - row[MARKED_BYTES]

    # @return [Integer] objects made here; 0 where none was tracked
    def self.object_allocations(row) = row[OBJECTS] ? row[OBJECTS][OBJECT_ALLOCATIONS] : 0

    # @return [Integer] live objects; 0 where none was tracked
    def self.live_objects(row)
      objects = row[OBJECTS]
      objects ? objects[OBJECT_ALLOCATIONS] - objects[OBJECT_FREES] : 0
    end

    # @return [Integer] bytes of live objects' slots; 0 where none was tracked
    def self.object_bytes(row)
      objects = row[OBJECTS]
      objects ? objects[OBJECT_TOTAL_BYTES] - objects[OBJECT_FREED_BYTES] : 0
    end

    # @return [Boolean] whether the objects are a sample
    def self.sampled_objects?(row) = !row[OBJECTS].nil? && row[OBJECTS].size > OBJECT_COLUMNS.size

    # @return [Integer] live bytes of malloc and of slots
    def self.retained_bytes(row) = live_bytes(row) + object_bytes(row)
  end
end
