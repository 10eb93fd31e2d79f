# frozen_string_literal: true

require_relative "figure_lists"

module Memintro
  # The figures of call sites, of their objects and of the process, by the lists in {FigureLists}. Plain Ruby without
  # the extension, because the command must start quickly.
  # @api private
  module Figures
    # How a figure adds up: `:sum`, `:exact` (a sum that is never an estimate), `:max`, `:derived` (from other figures),
    # `:object` (from figures of objects), `:old` (a sum that a raw dump lacks), `:state` (not shown). Its unit:
    # `:count`, `:bytes`, `:change`, `:age`, `:mean_age`, `:ages`. Its column in tables: `:always`, `:objects` (if
    # objects were tracked), `:sorted` (if sorted by it), nil.
    Figure = Struct.new(:name, :adds, :unit, :column, :place, :heading) do
      # @return [Boolean] whether call sites can be sorted by it
      def sortable? = !%i[old state].include?(adds)

      # @return [Boolean] whether it has a standard error if blocks are sampled
      def estimated? = %i[sum derived object old].include?(adds)

      # @return [Boolean] whether it is a number of bytes
      def bytes? = %i[bytes change].include?(unit)

      # @return [Boolean] whether it is an age, or made of ages
      def age? = %i[age mean_age ages].include?(unit)
    end

    # @param rows [Array<Array>] of {FigureLists}
    # @return [Array<Figure>]
    def self.list(rows) = rows.map { |row| Figure.new(*row).freeze }.freeze
    private_class_method :list

    # Of a call site, in the order of JSON.
    SITE = list(FigureLists::SITE)
    # Of its objects.
    OBJECTS = list(FigureLists::OBJECTS)
    # Of the process, in the order of JSON.
    TOTALS = list(FigureLists::TOTALS)

    # @param list [Array<Figure>]
    # @param adds [Array<Symbol>]
    # @return [Array<Symbol>] names of those that add up so
    def self.names(list, *adds) = list.select { |figure| adds.include?(figure.adds) }.map(&:name).freeze

    # What a row of a call site holds: sums, and maxima.
    SUMS = names(SITE, :sum)
    # See {SUMS}.
    MAXIMA = names(SITE, :max)
    # Sums of blocks and bytes, the estimates of which have a skew.
    SKEWED = names(SITE.reject(&:age?), :sum)
    # Figures of blocks that are always known.
    OF_BLOCKS = names(SITE, :sum, :max, :derived)
    # Figures of objects.
    OF_OBJECTS = names(SITE, :object)
    # What call sites can be sorted by.
    SORTABLE = [*OF_BLOCKS, *OF_OBJECTS].freeze
    # What {Totals} takes, in its order.
    OF_PROCESS = [*names(TOTALS, :sum), *names(TOTALS, :exact)].freeze
    # Those of them that are estimates where blocks are sampled.
    OF_PROCESS_ESTIMATED = names(TOTALS, :sum)

    # @param name [Symbol]
    # @return [Figure, nil] of a call site
    def self.[](name) = SITE.find { |figure| figure.name == name }
  end
end
