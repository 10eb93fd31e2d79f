# frozen_string_literal: true

require "etc"
require "net/http"

module Bench
  # Drives the Puma of workloads/server.rb with wrk, and measures its workers.
  #
  # wrk asks over 16 connections as fast as it is answered, first to warm up. It is written in C and takes little of the
  # processors (`driver_share` says how much), so the workers are what is measured. p50_s and p99_s are those of a
  # server under all the load it can take: mostly a request waits for others. So it is driven once more at a steady rate
  # of some 100 requests a second: paced_p50_s and paced_p99_s are those of a server with time to spare.
  class ServerLoad
    # It could not be measured.
    Failed = Class.new(StandardError)
    # cpu_s, user and system time of the workers, is that of one request; collections and allocations are those of a
    # thousand. peak_rss_bytes is the sum of the workers' VmHWM, driver_share wrk's part of the processors.
    Figures = Struct.new(:requests, :cpu_s, :p50_s, :p99_s, :peak_rss_bytes, :minor_gcs, :major_gcs, :allocations,
                         :driver_share, :paced_p50_s, :paced_p99_s, keyword_init: true)
    WORKERS = 2
    WARM_UP_SECONDS = 3
    # Instead of seconds, where the time is scaled to none: what first requests load is mostly loaded then.
    WARM_UP_REQUESTS = 20
    SECONDS = 8
    # Three thousand requests: thirty are slower than their p99. Each has a connection of its own, because a thread of
    # Puma's waits up to 0.2 s for the next request of a connection, and requests of others wait with it.
    PACED_SECONDS = 30
    PACE = ["-H", "Connection: close", "-s", File.join(__dir__, "paced.lua")].freeze
    PATIENCE_SECONDS = 60
    UNITS = { "us" => 1e-6, "ms" => 1e-3, "s" => 1.0 }.freeze

    # @param master [Integer] process of the server
    # @param folder [String] where it writes its port once it serves
    # @param scale [Float] of the time that it is driven
    def initialize(master, folder, scale)
      @master = master
      @folder = folder
      @scale = scale
    end

    # @return [Figures] the server is told to end then
    def call
      @port = await("listen") { read_port }
      warm_up
      measure
    ensure
      # Puma then returns to the program; after TERM it exits.
      Process.kill(:INT, @master)
    end

    private

    def warm_up
      seconds = (WARM_UP_SECONDS * @scale).round
      seconds.zero? ? WARM_UP_REQUESTS.times { Net::HTTP.get(page) } : drive(seconds)
    end

    def page = URI("http://127.0.0.1:#{@port}/page")

    def measure
      before, cpu_before, driver_before = counts, workers_cpu_s, Process.times.cutime + Process.times.cstime
      begun = now
      wrk = drive(scaled(SECONDS))
      elapsed = now - begun
      cpu, driver = workers_cpu_s - cpu_before, Process.times.cutime + Process.times.cstime - driver_before
      minor, major, allocations = counts.zip(before).map { |after, first| 1000.0 * (after - first) / wrk[:requests] }
      figures = Figures.new(**wrk, cpu_s: cpu / wrk[:requests], peak_rss_bytes: workers_peak_bytes, minor_gcs: minor,
                                   major_gcs: major, allocations: allocations,
                                   driver_share: driver / (elapsed * Etc.nprocessors))
      figures.paced_p50_s, figures.paced_p99_s = drive(scaled(PACED_SECONDS), *PACE).values_at(:p50_s, :p99_s)
      figures
    end

    # At least two seconds, for a busy machine may take one of them.
    def scaled(seconds) = [(seconds * @scale).round, 2].max

    def drive(seconds, *pace)
      # What takes longer than its time limit would be an error, and no slow request.
      command = ["wrk", "-t1", "-c16", "-d#{seconds}s", "--timeout", "60s", "--latency", *pace]
      text = IO.popen([*command, page.to_s], &:read)
      requests = text[/(\d+) requests in/, 1].to_i
      raise Failed, "wrk reports errors" if text.match?(/Socket errors|Non-2xx/)
      raise Failed, "no request was answered" if requests.zero?

      { requests: requests, p50_s: latency(text, 50), p99_s: latency(text, 99) }
    end

    def latency(text, percent)
      number, unit = text.match(/^ +#{percent}% +([\d.]+)(us|ms|s) *$/)&.captures
      raise Failed, "wrk tells no latency:\n#{text}" unless unit

      number.to_f * UNITS.fetch(unit)
    end

    # Minor and major collections and allocations of all workers. Which of them answers is the kernel's to say.
    def counts
      answers = {}
      await("answer with all its workers") do
        worker, *counts = Net::HTTP.get(URI("http://127.0.0.1:#{@port}/figures")).split.map { |word| Integer(word) }
        answers[worker] = counts
        answers.size == WORKERS
      end
      answers.values.transpose.map(&:sum)
    end

    def workers = File.read("/proc/#{@master}/task/#{@master}/children").split

    def workers_cpu_s
      ticks = workers.sum { |worker| stat(worker).values_at(11, 12).sum(&:to_i) }
      ticks.fdiv(Etc.sysconf(Etc::SC_CLK_TCK))
    end

    # What the kernel says behind a process's name, which may hold anything.
    def stat(process) = File.read("/proc/#{process}/stat").rpartition(") ").last.split

    def workers_peak_bytes
      workers.sum { |worker| File.read("/proc/#{worker}/status")[/^VmHWM:\s+(\d+) kB/, 1].to_i * 1024 }
    end

    def read_port
      port = File.read(File.join(@folder, "port"))
      port unless port.empty?
    rescue Errno::ENOENT
      raise Failed, "the server ended" if stat(@master).first == "Z"
    end

    def await(what)
      due = now + PATIENCE_SECONDS
      loop do
        answer = yield
        return answer if answer
        raise Failed, "the server does not #{what}" if now > due

        sleep 0.02
      end
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
