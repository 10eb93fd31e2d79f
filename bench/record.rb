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
    # The last ones are the server's, whose processor time is that of a request.
    HEADER = %w[workload column cpu_s wall_s peak_rss_bytes failure requests p50_s p99_s minor_gcs major_gcs
                allocations driver_share paced_p50_s paced_p99_s].freeze

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
        Run.new(workload: row["workload"], column: row["column"], failure: row["failure"],
                **(HEADER - %w[workload column failure]).to_h { |name| [name.to_sym, number(row[name])] })
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
      HEADER.map { |name| run[name] }.map { |value| value.is_a?(Float) ? value.round(6) : value }
    end

    # A record from before the server has none of its figures.
    def number(text)
      text && (text.match?(/\A\d+\z/) ? Integer(text) : Float(text))
    end
  end
end
