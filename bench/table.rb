# frozen_string_literal: true

require_relative "columns"
require_relative "statistics"
require_relative "workloads"

module Bench
  # Runs as one table: plain Ruby in seconds and megabytes, every other column as a ratio to it, medians throughout.
  #
  # A ratio is the median of the rounds' ratios: a column's run is compared with plain Ruby's of the same round, seconds
  # apart, for the machine may be another one minutes later.
  class Table
    Measure = Struct.new(:name, :title, :unit, :scale, keyword_init: true)

    MEASURES = [
      Measure.new(name: :cpu_s, title: "CPU", unit: "s", scale: 1),
      Measure.new(name: :peak_rss_bytes, title: "RSS", unit: "MB", scale: 1e6),
      Measure.new(name: :wall_s, title: "wall", unit: "s", scale: 1)
    ].freeze
    # Of the server: of one request, of both workers, and of a thousand requests.
    SERVER_MEASURES = [
      Measure.new(name: :cpu_s, title: "CPU/request", unit: "ms", scale: 1e-3),
      Measure.new(name: :p50_s, title: "p50", unit: "ms", scale: 1e-3),
      Measure.new(name: :p99_s, title: "p99", unit: "ms", scale: 1e-3),
      Measure.new(name: :paced_p50_s, title: "paced p50", unit: "ms", scale: 1e-3),
      Measure.new(name: :paced_p99_s, title: "paced p99", unit: "ms", scale: 1e-3),
      Measure.new(name: :peak_rss_bytes, title: "RSS", unit: "MB", scale: 1e6),
      Measure.new(name: :minor_gcs, title: "minor GCs", unit: "/1,000", scale: 1),
      Measure.new(name: :major_gcs, title: "major GCs", unit: "/1,000", scale: 1)
    ].freeze

    NO_FIGURE = "–"

    def initialize(runs, measures: [*MEASURES, *SERVER_MEASURES].map(&:name))
      @runs = runs
      @measures, @server_measures = [MEASURES, SERVER_MEASURES].map do |all|
        all.select { |measure| measures.include?(measure.name) }
      end
      @workloads = runs.map(&:workload).uniq
      known = COLUMNS.map(&:name)
      @columns = runs.map(&:column).uniq.sort_by { |name| known.index(name) || known.size }
      # By round, the failed ones among them: a column runs once a round until it fails.
      @rounds = runs.group_by { |run| [run.workload, run.column] }
      @good = @rounds.transform_values { |all| all.reject(&:failure) }.reject { |_, good| good.empty? }
    end

    def text
      widths = cells.transpose.map { |column| column.map(&:size).max }
      lines = cells.map do |row|
        row.zip(widths).map.with_index { |(cell, width), i| i < 2 ? cell.ljust(width) : cell.rjust(width) }.join("  ")
      end
      [lines.first, "-" * lines.first.size, *lines.drop(1), "", *notes].join("\n")
    end

    def markdown
      rule = ["---", "---", *@columns.map { "---:" }]
      rows = [cells.first, rule, *cells.drop(1)].map { |row| "| #{row.join(" | ")} |" }
      [*rows, "", *notes.map { |note| "- #{note}" }].join("\n")
    end

    # What the reader has to know beside the figures.
    def notes
      [*legend, noise, *server_notes, *failures].compact
    end

    private

    def cells
      @cells ||= [["workload", "", *@columns], *workload_rows, *mean_rows]
    end

    def workload_rows
      @workloads.flat_map do |workload|
        (server?(workload) ? @server_measures : @measures).map do |measure|
          [workload, measure.title, *@columns.map { |column| cell(workload, column, measure) }]
        end
      end
    end

    def cell(workload, column, measure)
      return plain_cell(workload, measure) if column == @columns.first

      ratio = ratio(workload, column, measure)
      ratio ? format("%.2fx", ratio) : NO_FIGURE
    end

    def plain_cell(workload, measure)
      # Records from before a measure have none of its figures.
      values = @good.fetch([workload, @columns.first], []).filter_map { |run| run[measure.name] }
      values.empty? ? NO_FIGURE : format("%.2f %s", Statistics.median(values) / measure.scale, measure.unit)
    end

    def server?(workload) = known(workload)&.server

    def known(workload) = WORKLOADS.find { |one| one.name == workload }

    # Of a group of workloads each; the server has no mean.
    def mean_rows
      groups = @workloads.reject { |workload| server?(workload) }.group_by { |workload| known(workload)&.group }
      groups.flat_map do |group, workloads|
        title = groups.size > 1 ? "geometric mean, #{group}" : "geometric mean"
        @measures.map { |measure| [title, measure.title, *@columns.map { |column| mean(workloads, column, measure) }] }
      end
    end

    def mean(workloads, column, measure)
      ratios = workloads.filter_map { |workload| ratio(workload, column, measure) }
      return NO_FIGURE if ratios.empty?

      # Three digits, because a target of 1.01 cannot be read off two.
      format("%.3fx%s", Statistics.geometric_mean(ratios), ratios.size < workloads.size ? "*" : "")
    end

    def ratio(workload, column, measure)
      rounds = @rounds.fetch([workload, column], []).zip(@rounds.fetch([workload, @columns.first], []))
      ratios = rounds.filter_map do |run, plain|
        # In a short run there may be no major collection.
        next if plain.nil? || run.failure || plain.failure || plain[measure.name].to_f.zero?

        run[measure.name].fdiv(plain[measure.name])
      end
      Statistics.median(ratios) unless ratios.empty?
    end

    def legend
      @columns.filter_map { |name| COLUMNS.find { |column| column.name == name } }
              .map { |column| "#{column.name}: #{column.what}" }
    end

    def noise
      groups = @good.values.select { |runs| runs.size > 1 }
      return "one run of each: nothing is known of the noise" if groups.empty?

      spread = Statistics.median(groups.map { |runs| Statistics.spread(runs.map(&:cpu_s)) })
      format("medians of %d runs; the middle half of the runs of a cell lies within %.1f %% of its median CPU time",
             groups.map(&:size).max, spread * 100)
    end

    # What shows that the server was what was measured, and not the one who drives it.
    def server_notes
      runs = @runs.select { |run| run.requests && !run.failure }
      return [] if runs.empty?

      tracked = runs.select { |run| run.allocations.positive? && run.column == "full" }
      calls = Statistics.median(tracked.map { |run| run.allocations / 1000 }) unless tracked.empty?
      spread = @server_measures.filter_map { |measure| spread_of(measure) }.join(", ")
      [format("server: runs of %d requests or more, %swrk took %.1f %% of the processors at most",
              runs.map(&:requests).min, calls ? format("%d allocations each; ", calls) : "",
              runs.map(&:driver_share).max * 100),
       spread.empty? ? nil : "server, middle half of a column's runs within: #{spread}"].compact
    end

    def spread_of(measure)
      groups = @good.select { |(workload, _), runs| server?(workload) && runs.size > 1 }.values
      spreads = groups.map { |runs| runs.filter_map { |run| run[measure.name] } }.reject { |values| values.sum.zero? }
      return if spreads.empty?

      format("%s %.1f %%", measure.title, Statistics.median(spreads.map { |values| Statistics.spread(values) }) * 100)
    end

    def failures
      failed = @runs.select(&:failure).uniq { |run| [run.workload, run.column] }
      groups = failed.group_by { |run| [run.column, run.failure] }
      lines = groups.map do |(column, why), runs|
        "#{column} has no figure for #{runs.map(&:workload).join(", ")}: #{why}"
      end
      lines.empty? ? [] : [*lines, "*: mean of the workloads that have a figure"]
    end
  end
end
