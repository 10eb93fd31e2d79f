# frozen_string_literal: true

require_relative "columns"
require_relative "runner"
require_relative "statistics"
require_relative "workloads"

module Bench
  # What tracking costs a full collection: times GC.start in processes with three million objects
  # (workloads/collection.rb). Each round runs every column once, in an order of its own; a figure is the median of the
  # rounds' ratios to plain Ruby.
  class Collection
    # Unless others are chosen.
    COLUMNS_TIMED = COLUMNS.select { |column| %w[plain again off sampled full live table].include?(column.name) }.freeze
    WORKLOAD = Workload.new(name: "collection", what: "full collections among three million objects")
    FOUND = ["nothing to free", "300,000 strings to free"].freeze

    # @param setup [Setup]
    # @param columns [Array<Column>] the first is plain Ruby
    # @param rounds [Integer]
    # @param scale [Float] of the number of objects
    # @param limit_s [Integer] as {Runner}'s
    def initialize(setup, columns, rounds:, scale:, limit_s:)
      @setup = setup
      @columns = columns
      @rounds = rounds
      @runner = Runner.new(setup, scale: scale, limit_s: limit_s)
    end

    # @return [String] a line for each of FOUND, below a heading
    def call
      @setup.prepare([WORKLOAD], @columns)
      rounds = Array.new(@rounds) { @columns.shuffle.to_h { |column| [column.name, times(column)] } }
      heading = format("%-26s", "a full collection") + @columns.map { |column| format("%12s", column.name) }.join
      [heading, *FOUND.map { |what| line(what, rounds) }].join("\n")
    end

    private

    # Milliseconds by what there was to free.
    def times(column)
      run = @runner.run(WORKLOAD, column)
      abort "#{column.name}: #{run.failure}" if run.failure
      FOUND.zip(run.result.split(",").map { |word| Float(word) }).to_h
    end

    def line(what, rounds)
      plain, *others = @columns.map { |column| rounds.map { |round| round[column.name].fetch(what) } }
      ratios = others.map { |times| Statistics.median(times.zip(plain).map { |time, base| time / base }) }
      format("%-26s%12s", what, format("%.0f ms", Statistics.median(plain))) +
        ratios.map { |ratio| format("%12s", format("%.2fx", ratio)) }.join
    end
  end
end
