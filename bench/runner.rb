# frozen_string_literal: true

require "fileutils"
require_relative "server_load"

module Bench
  # What one run cost; workload and column are their names. `failure` is nil, or why there are no figures. Of the server
  # there are ServerLoad's figures instead of cpu_s, wall_s and peak_rss_bytes.
  Run = Struct.new(:workload, :column, :cpu_s, :wall_s, :peak_rss_bytes, :result, :failure,
                   *(ServerLoad::Figures.members - %i[cpu_s peak_rss_bytes]), keyword_init: true)

  # Runs one workload in one column and measures it.
  #
  # CPU is user and system time of all processes of the run, as the kernel sums them for the children that were waited
  # for; so one run at a time. Peak RSS is VmHWM of the Ruby process alone.
  class Runner
    # A column that is bound may take this part of the machine's memory.
    MEMORY_SHARE = 0.5

    def initialize(setup, scale:, limit_s:)
      @setup = setup
      @scale = scale
      @limit_s = limit_s
    end

    def run(workload, column)
      scratch = File.join(@setup.scratch, "run")
      FileUtils.rm_rf(scratch)
      FileUtils.mkdir_p(scratch)
      measure(workload, column, scratch)
    end

    private

    def measure(workload, column, scratch)
      result = File.join(scratch, "result")
      cpu_before = children_cpu_s
      clock = now
      pid = start(workload, column, scratch, result)
      driven, trouble = drive(pid, scratch) if workload.server
      status = trouble || finish(pid, column)
      run = Run.new(workload: workload.name, column: column.name, cpu_s: children_cpu_s - cpu_before,
                    wall_s: now - clock, failure: status)
      read_result(run, column, result) unless status
      take(run, driven, column) if driven && !run.failure
      run.failure &&= "#{run.failure}#{last_words(scratch)}"
      run
    end

    def start(workload, column, scratch, result)
      ruby = column.ruby(workload, result, @setup)
      env = { **workload.env, **column.environment(@setup, @scale) }
      options = { chdir: scratch, pgroup: true, in: File::NULL, out: File.join(scratch, "out"),
                  err: File.join(scratch, "err") }
      options[:rlimit_data] = memory_limit_bytes if column.bound
      Process.spawn(env, *column.command_line(ruby, scratch, @setup), options)
    end

    # The server's figures, or why there are none; it has ended or will end.
    def drive(pid, scratch)
      ServerLoad.new(pid, scratch, @scale).call
    rescue ServerLoad::Failed, SystemCallError => e
      Process.kill(:KILL, -pid)
      Process.wait(pid)
      [nil, e.message]
    end

    def take(run, figures, column)
      run.wall_s = nil
      figures.each_pair { |name, value| run[name] = value }
      run.failure = "the tool saw no allocations in the workers" if column.sees && figures.allocations.zero?
    end

    def finish(pid, column)
      waiter = Process.detach(pid)
      # Only what is known to run away has the short limit; a hang elsewhere is a failure, not a slow run.
      limit_s = column.bound ? @limit_s : @limit_s * 10
      unless waiter.join(limit_s)
        Process.kill(:KILL, -pid)
        waiter.join
        return "did not finish in #{limit_s} s"
      end
      status = waiter.value
      "exit status #{status.exitstatus || "signal #{status.termsig}"}" unless status.success?
    rescue Interrupt
      Process.kill(:KILL, -pid)
      raise
    end

    def read_result(run, column, path)
      return run.failure = "left no result" unless File.exist?(path)

      figures = File.readlines(path, chomp: true).to_h { |line| line.split(" ", 2) }
      run.peak_rss_bytes = Integer(figures.fetch("peak_rss_bytes"))
      run.result = figures["result"]
      run.failure = "the tool saw no allocations" if column.sees && figures["seen"].to_i < 1_000
    end

    def last_words(scratch)
      line = File.foreach(File.join(scratch, "err"), chomp: true).first
      line && ": #{line[0, 100]}"
    end

    def memory_limit_bytes
      (File.read("/proc/meminfo")[/^MemTotal:\s+(\d+) kB/, 1].to_i * 1024 * MEMORY_SHARE).to_i
    end

    def children_cpu_s
      times = Process.times
      times.cutime + times.cstime
    end

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
