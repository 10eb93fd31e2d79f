# frozen_string_literal: true

require "csv"
require "etc"
require "fileutils"
require "rbconfig"
require_relative "runner"

module Bench
  # Runs kept as CSV, one line a run, under record/<kind of machine>/<date>.csv. What names a machine, or a path on
  # it, is not recorded.
  module Record
    HEADER = %w[workload column cpu_s wall_s peak_rss_bytes failure].freeze

    module_function

    def write(runs)
      path = File.join(__dir__, "record", machine_kind, "#{Time.now.utc.strftime("%Y-%m-%d")}.csv")
      FileUtils.mkdir_p(File.dirname(path))
      lines = runs.map { |run| row(run).to_csv }
      File.write(path, ["# #{circumstances}\n", HEADER.to_csv, *lines].join)
      path
    end

    def read(path)
      CSV.foreach(path, headers: true, skip_lines: /\A#/).map do |row|
        Run.new(workload: row["workload"], column: row["column"], cpu_s: row["cpu_s"].to_f, wall_s: row["wall_s"].to_f,
                peak_rss_bytes: row["peak_rss_bytes"].to_i, failure: row["failure"])
      end
    end

    def machine_kind
      "#{RbConfig::CONFIG["host_cpu"]}-#{Etc.nprocessors}cpu"
    end

    def circumstances
      model = File.read("/proc/cpuinfo")[/^model name\s*:\s*(.+)$/, 1]
      [RUBY_DESCRIPTION, "#{Etc.nprocessors} processors", model, "load #{File.read("/proc/loadavg").split.first}"]
        .compact.join("; ")
    end

    def row(run)
      [run.workload, run.column, run.cpu_s.round(4), run.wall_s.round(4), run.peak_rss_bytes, run.failure]
    end
  end
end
