# frozen_string_literal: true

require_relative "../support/settings"
require_relative "../logging/memory_line_log"
require_relative "../process/memory"

module Memintro
  # Writes lines about the processes of a Puma. The process in which the plugin runs writes them: the master in cluster
  # mode. The total is PSS, in which pages that workers share with the master count once.
  #
  # @api private
  class PumaReport
    # One process, or all of them. Each field of the line is a method, except `time`, which Puma's log does not write.
    Row = Struct.new(:process, :index, :pid, :rss_bytes, :pss_bytes, :uss_bytes, :requests, :workers,
                     keyword_init: true)
    # Default number of seconds between two reports.
    DEFAULT_SECONDS = 60
    # Sets the seconds.
    VARIABLE = "MEMINTRO_PUMA_EVERY"

    # @param launcher [Puma::Launcher]
    def initialize(launcher)
      @launcher = launcher
      @line = MemoryLine.new([*Row.members, :time], :logfmt)
      @target = LogTarget.new(nil)
    end

    # @return [Float]
    # @raise [ArgumentError] if the variable holds no such number
    def self.seconds
      text = ENV.fetch(VARIABLE, "")
      text.empty? ? DEFAULT_SECONDS.to_f : Settings[:every].parse(text, VARIABLE)
    end

    # Writes lines at the interval until the process ends.
    # @return [void]
    def run(seconds = PumaReport.seconds)
      Memintro.untracked do
        loop do
          sleep(seconds)
          write
        end
      end
    end

    # @return [void]
    def write
      rows.each { |row| @target.write(@line.render(row), log) }
    rescue StandardError => e
      @target.tell_once(e)
    end

    # @return [Array<Row>] the single process; or the master, its workers and the total
    def rows
      workers = worker_rows
      return [row("single", Process.pid)].compact unless workers

      all = [row("master", Process.pid), *workers].compact
      [*all, Row.new(process: "total", workers: workers.size, rss_bytes: sum(all, :rss_bytes),
                     pss_bytes: sum(all, :pss_bytes), uss_bytes: sum(all, :uss_bytes))]
    end

    private

    # Nil in single mode.
    def worker_rows
      status = @launcher.stats[:worker_status]
      status&.filter_map do |worker|
        row("worker", worker[:pid], index: worker[:index], requests: worker.dig(:last_status, :requests_count))
      end
    end

    # Nil for a worker that has ended, or that has not started yet.
    def row(name, pid, **more)
      memory = ProcessMemory.new(pid)
      # All figures are of one reading.
      rss, pss, uss = memory.to_h.values_at(:rss, :pss, :uss)
      Row.new(process: name, pid: pid, rss_bytes: rss, pss_bytes: pss, uss_bytes: uss, **more)
    rescue Error, ArgumentError, TypeError
      nil
    end

    def sum(rows, figure) = rows.sum { |row| row[figure] }

    # The log of Puma; its name changed with version 6.
    def log
      @log ||= Struct.new(:writer) { def info(line) = writer.log(line) }
                     .new(@launcher.respond_to?(:log_writer) ? @launcher.log_writer : @launcher.events)
    end
  end
end
