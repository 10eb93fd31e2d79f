# frozen_string_literal: true

require_relative "../support/statistics"
require_relative "rounds"
require_relative "../support/sequential_interval"

module Memintro
  # Decides whether a block leaks: whether each iteration leaves memory.
  #
  # After a warm-up the block runs in rounds. After one full collection at the end of a *stage* of rounds, the bytes
  # that are left of each round are known; {SequentialInterval} decides. A stage whose rounds leave nothing ends the
  # check, after a single collection. Otherwise a stage of four times the iterations follows, because a cache may
  # still be filling, and then one of half as many, for which Ruby's heap need not grow any more. The block leaks only
  # if the rounds of both stages leave memory, at a pace that does not slow down, and if the sum of all live memory
  # has grown with it: a full cache that replaces its entries is no leak. A pace that slows down gets two longer
  # stages.
  # @api private
  class LeakCheck
    # Rounds of a stage.
    ROUNDS = 20
    # See {SequentialInterval}.
    LEAD = 10
    # Iterations of each stage, as multiples of those of the first.
    FACTORS = [1, 4, 2, 16, 8].freeze
    # A pace that slows down by more than this share is that of a cache that fills.
    STEADY = 0.9
    # The same share after the last stage.
    LAST_STEADY = 0.5
    # If the sum grows by a smaller share of the rounds' remains, these replace older memory.
    REPLACED = 0.4
    # Longer stages that would take more seconds are not begun.
    MOST_SECONDS = 10
    # Collections, for objects that need several until they are freed, such as the Proc of a finalizer.
    COLLECTIONS = 4
    # Lines that a verdict names.
    LINES = 5
    private_constant :FACTORS, :STEADY, :LAST_STEADY, :REPLACED, :MOST_SECONDS, :COLLECTIONS

    # The outcome: `above?` (it leaks), iterations of the last stage and bytes that they left, bytes of one iteration
    # (and least and most, if the rounds tell), how many of them are of stacks of fibers, and who made them.
    Outcome = Struct.new(:above, :iterations, :bytes, :per_iteration, :low, :high, :stacks, :lines,
                         keyword_init: true) do
      alias_method :above?, :above
    end
    Stage = Struct.new(:per_round, :moments, :left, :total, :interval, :net, keyword_init: true) do
      # @return [Integer]
      def iterations = per_round * left.size

      # @return [Integer]
      def bytes = left.sum(&:bytes)

      # @return [Numeric] bytes of stacks of fibers, of an iteration
      def stacks = Statistics.median(left.map { |part| part.stack_bytes.fdiv(per_round) })

      # An occasional allocation, such as a larger table for a Hash, does not change the pace.
      #
      # @return [Float] bytes that an iteration adds
      def pace = replaces? ? net.fdiv(iterations) : Statistics.median(interval.readings)

      # A table that grows frees the one before, which is up to half as large.
      #
      # @return [Boolean] whether so much older memory was freed that the rounds alone do not show the pace
      def replaces? = net < REPLACED * bytes
    end
    private_constant :Stage

    # @param iterations [Integer] of the first stage, about
    # @param warm_up [Integer] iterations before it
    # @param per_iteration [Integer] bytes that an iteration may leave
    def initialize(iterations:, warm_up:, per_iteration:)
      @rounds = [iterations, ROUNDS].min
      @size = (iterations / @rounds.to_f).ceil
      @warm_up = warm_up
      @limit = per_iteration
    end

    # @param block [Proc]
    # @return [Outcome]
    # @raise (see Rounds.during)
    def run(block)
      Rounds.during(block) do |rounds|
        @begun = clock
        @start = rounds.moment
        rounds.run(@warm_up)
        decide(rounds)
      end
    end

    private

    def decide(rounds)
      before = stage = nil
      FACTORS.each_with_index do |factor, number|
        break if number == 3 && too_slow?

        before, stage = stage, run_stage(rounds, @size * factor, stage)
        break if stage.interval.verdict == :below || stage.net <= @limit * stage.iterations
        return verdict(rounds, stage, true) if number == 2 && goes_on?(before, stage, STEADY)
      end
      verdict(rounds, stage, goes_on?(before, stage, LAST_STEADY))
    end

    # The two longer stages take some four times as long as the three before.
    def too_slow? = (clock - @begun) * 4 > MOST_SECONDS

    def goes_on?(before, stage, share)
      return false if before.nil? || [before, stage].any? { |one| one.interval.verdict != :above }

      return false unless stage.net > @limit * stage.iterations && stage.pace >= share * before.pace

      # With replaced memory, a single step of the sum is no pace.
      !stage.replaces? || stage.pace <= before.pace / share
    end

    def run_stage(rounds, size, before)
      moments = Array.new(@rounds) do
        rounds.moment.tap { rounds.run(size) }
      end
      stage = read(rounds, size, moments, before)
      COLLECTIONS.times do
        break unless stage.interval.verdict == :above

        again = read(rounds, size, moments, before)
        settled = again.total == stage.total
        stage = again
        break if settled
      end
      stage
    end

    def read(rounds, size, moments, before)
      rounds.collect
      older, *left = rounds.left([@start, *moments])
      total = older.bytes + left.sum(&:bytes)
      net = before ? total - before.total : left.sum(&:bytes)
      interval = SequentialInterval.new(@limit, [LEAD, left.size].min, left.map { |part| part.bytes.fdiv(size) })
      Stage.new(per_round: size, moments: moments, left: left, total: total, interval: interval, net: net)
    end

    def verdict(rounds, stage, leaks)
      figures = if stage.replaces?
                  { bytes: stage.net, per_iteration: stage.pace }
                else
                  low, high = stage.interval.interval
                  { bytes: stage.bytes, per_iteration: stage.pace, low: low, high: high }
                end
      Outcome.new(above: leaks, iterations: stage.iterations, **figures, stacks: stage.stacks,
                  lines: leaks ? rounds.lines(stage.moments.first, LINES) : [])
    end

    def clock = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
