# frozen_string_literal: true

# What tracking costs a full collection: `bin/bench collection [--runs N] [--columns A,B]`. Each round runs every column
# once; a figure is the median of the rounds' ratios to plain Ruby.

require "optparse"
require_relative "columns"
require_relative "runner"
require_relative "setup"
require_relative "statistics"
require_relative "workloads"

module Bench
  # Times GC.start in processes with three million objects (workloads/collection.rb).
  class Collection
    COLUMNS_TIMED = %w[again off sampled full live table].freeze
    WORKLOAD = Workload.new(name: "collection", what: "full collections among three million objects")
    FOUND = ["nothing to free", "300,000 strings to free"].freeze

    # @param names [Array<String>] columns beside plain Ruby
    def initialize(names: COLUMNS_TIMED, rounds: 5, scale: 1.0, install: true)
      unknown = names - COLUMNS.map(&:name)
      abort "no column #{unknown.join(", ")}; there are #{COLUMNS.map(&:name).join(", ")}" unless unknown.empty?

      @columns = ["plain", *names].map { |name| COLUMNS.find { |column| column.name == name } }
      @rounds = rounds
      @setup = Setup.new(install: install)
      @runner = Runner.new(@setup, scale: scale, limit_s: 60)
    end

    def call
      @setup.prepare([WORKLOAD], @columns)
      rounds = Array.new(@rounds) { @columns.shuffle.to_h { |column| [column.name, times(column)] } }
      puts format("%-26s", "a full collection") + @columns.map { |column| format("%12s", column.name) }.join
      FOUND.each { |what| puts line(what, rounds.map { |round| round.transform_values { |times| times.fetch(what) } }) }
    end

    private

    # Milliseconds by what there was to free.
    def times(column)
      run = @runner.run(WORKLOAD, column)
      abort "#{column.name}: #{run.failure}" if run.failure
      FOUND.zip(run.result.split(",").map { |word| Float(word) }).to_h
    end

    def line(what, rounds)
      ratios = @columns.drop(1).map do |column|
        format("%12s", format("%.2fx", Statistics.median(rounds.map { |round| round[column.name] / round["plain"] })))
      end
      plain = Statistics.median(rounds.map { |round| round["plain"] })
      format("%-26s%12s", what, format("%.0f ms", plain)) + ratios.join
    end
  end
end

options = {}
OptionParser.new do |parser|
  parser.on("--columns LIST", Array) { |list| options[:names] = list }
  parser.on("--runs N", Integer) { |count| options[:rounds] = count }
  parser.on("--scale FACTOR", Float) { |factor| options[:scale] = factor }
  parser.on("--no-setup") { options[:install] = false }
end.parse(ARGV)
Bench::Collection.new(**options).call
