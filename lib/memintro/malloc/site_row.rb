# frozen_string_literal: true

module Memintro
  # The columns of a call site's row, which is a plain Array because there may be a million of them. The extension makes
  # rows in this order (`Native::SITE_COLUMNS` has the same order), {CallSites::Reader} makes the same rows from JSON,
  # and all other code names columns by these constants.
  # @api private
  module SiteRow
    # Names of the columns. If the site is not a line of Ruby, `lineno` is 0 and `name` the whole name; otherwise `name`
    # is the path. `marked_bytes` were live at the mark. `variances` is nil if all is exact; `old` is nil if it is not
    # known.
    COLUMNS = %i[id kind name lineno allocations frees total_bytes freed_bytes age_total max_lifespan marked_bytes
                 variances old objects native_callers].freeze
    ID, KIND, NAME, LINENO, ALLOCATIONS, FREES, TOTAL_BYTES, FREED_BYTES, AGE_TOTAL, MAX_LIFESPAN, MARKED_BYTES,
      VARIANCES, OLD, OBJECTS, NATIVE_CALLERS = *0...COLUMNS.size
    # What rows of whole stacks have behind these: frozen arrays of path, line and label, the innermost first.
    STACK = COLUMNS.size
    # What rows of whole stacks in JSON have: these, without id and native callers.
    STACK_FIGURES = STACK - 1

    # What `native_callers` holds, which is nil where none is known: samples, live samples, and for each caller what
    # {NativeCaller} takes.
    CALLER_SAMPLES, CALLER_LIVE_SAMPLES, CALLERS = *0...3

    # What `objects` holds, which is nil where no object was tracked. Bytes are those of slots.
    OBJECT_COLUMNS = %i[allocations frees total_bytes freed_bytes marked_bytes old_objects old_bytes].freeze
    OBJECT_ALLOCATIONS, OBJECT_FREES, OBJECT_TOTAL_BYTES, OBJECT_FREED_BYTES, OBJECT_MARKED_BYTES, OLD_OBJECTS,
      OLD_OBJECT_BYTES = *0...OBJECT_COLUMNS.size

    # What it holds behind these if the objects are a sample: variances and skews.
    OBJECT_DOUBTS = %i[allocations_variance frees_variance total_bytes_variance freed_bytes_variance allocations_skew
                       frees_skew total_bytes_skew freed_bytes_skew old_objects_variance old_bytes_variance
                       old_objects_skew old_bytes_skew].freeze
    # Where {OBJECT_DOUBTS} begin: variances of what came, of what went, and the skews of both.
    OBJECT_VARIANCES = OBJECT_COLUMNS.size
    OBJECT_SKEWS = OBJECT_VARIANCES + 4

    # What `old` and the rows of Memintro::Native.live_by_site begin with: bytes and blocks of some age; and, of
    # estimates, their variances and skews.
    OLD_BYTES, OLD_BLOCKS, OLD_BYTES_VARIANCE, OLD_BLOCKS_VARIANCE, OLD_BYTES_SKEW, OLD_BLOCKS_SKEW = *0...6

    # What `variances` holds: of these figures; what gives the mean lifespan its standard error; and skews of the first
    # four.
    SUMS = %i[allocations frees total_bytes freed_bytes growth age_total].freeze
    LIFESPAN_COVARIANCE = SUMS.size
    SKEWS = LIFESPAN_COVARIANCE + 1
    SKEWED = SUMS.first(4).freeze

    # The sums of several rows, none of which has what another has. Variances of sites add up, because their samples are
    # drawn independently.
    #
    # @param rows [Array<Array>] at least one
    # @param kind [Symbol]
    # @param name [String]
    # @param lineno [Integer]
    # @return [Array] a row, with the id of the first one
    def self.sum(rows, kind, name, lineno = 0)
      [rows.first[ID], kind, name, lineno,
       *(ALLOCATIONS..AGE_TOTAL).map { |column| rows.sum { |row| row[column] } },
       rows.map { |row| row[MAX_LIFESPAN] }.max, rows.sum { |row| row[MARKED_BYTES] },
       *[VARIANCES, OLD, OBJECTS].map { |column| sum_of_lists(rows.filter_map { |row| row[column] }) }, nil]
    end

    # An exact figure has no variance, so lists may differ in length.
    def self.sum_of_lists(lists)
      longest = lists.max_by(&:size) || return
      Array.new(longest.size) { |at| lists.sum { |list| list[at] || 0 } }
    end
    private_class_method :sum_of_lists

    # @return [Integer] live bytes; after `Mwrap.reset` frees can outweigh allocations
    def self.live_bytes(row) = row[TOTAL_BYTES] - row[FREED_BYTES]

    # @return [Integer]
    def self.live_blocks(row) = row[ALLOCATIONS] - row[FREES]

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
    def self.sampled_objects?(row) = !row[OBJECTS].nil? && row[OBJECTS].size > OBJECT_VARIANCES

    # @return [Integer] live bytes of malloc and of slots
    def self.retained_bytes(row) = live_bytes(row) + object_bytes(row)

    # @param variances [Array<Float>]
    # @param figure [Symbol] of {SUMS}
    # @return [Float]
    def self.variance(variances, figure) = variances[SUMS.index(figure)]

    # @param variances [Array<Float>]
    # @param figure [Symbol] of {SKEWED}
    # @return [Float] 0.0 where a file of an older memintro has none
    def self.skew(variances, figure) = variances[SKEWS + SKEWED.index(figure)].to_f
  end
end
