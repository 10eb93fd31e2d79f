# frozen_string_literal: true

require_relative "runner"

module Bench
  # All runs of all columns, interleaved: each round runs every column once, in an order of its own, so that a slow
  # minute of the machine falls on all of them. Those that are bound may take a minute a run: they come last, and in the
  # first rounds only.
  class Session
    BOUND_ROUNDS = 5

    attr_reader :runs

    def initialize(setup, workloads, columns, rounds:, scale:, limit_s:, progress: $stderr)
      @setup = setup
      @workloads = workloads.select { |workload| present?(workload.name, workload.package) }
      @columns = columns.select { |column| present?(column.name, column.needs) }
      @runner = Runner.new(setup, scale: scale, limit_s: limit_s)
      @rounds = rounds
      @progress = progress
      @runs = []
    end

    # Columns and workloads that cannot be run here: [[name, reason], …]
    def left_out
      @left_out ||= []
    end

    # Interrupted, it answers the runs so far: an hour's figures are not lost for a minute's.
    def call
      order = Random.new(1)
      given_up = {}
      (1..@rounds).each do |round|
        bound, quick = @columns.shuffle(random: order).partition(&:bound)
        bound.clear if round > BOUND_ROUNDS
        @workloads.each do |workload|
          run_all(workload, round, (quick + bound).select { |column| column.runs?(workload) }, given_up)
        end
      end
      check_results
      @runs
    rescue Interrupt
      @progress.puts
      check_results
      @runs
    end

    private

    def run_all(workload, round, columns, given_up)
      @progress.print "bench: round #{round} of #{@rounds}, #{workload.name} "
      columns.each do |column|
        next if given_up[[workload, column]]

        run = @runner.run(workload, column)
        @runs << run
        given_up[[workload, column]] = true if run.failure
        @progress.print(run.failure ? "!" : ".")
      end
      @progress.puts
    end

    def present?(name, need)
      reason = @setup.missing(need)
      left_out << [name, reason] if reason
      reason.nil?
    end

    # Different work cannot be compared.
    def check_results
      @runs.reject(&:failure).group_by(&:workload).each_value do |runs|
        expected = runs.map(&:result).tally.max_by(&:last).first
        wrong = runs.select { |run| run.result != expected || run.result.empty? }
        wrong.each { |run| run.failure = "another result than the others" }
      end
    end
  end
end
