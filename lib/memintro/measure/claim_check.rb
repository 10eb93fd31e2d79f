# frozen_string_literal: true

require_relative "../support/statistics"
require_relative "rounds"
require_relative "../support/sequential_interval"

module Memintro
  # Decides whether a figure of one iteration of a block is above a limit: the bytes that it allocates, those that it
  # retains, or the objects of a class that it retains. Each iteration is measured separately, until
  # {SequentialInterval} decides; after the last one, the median decides.
  # @api private
  class ClaimCheck
    # See {SequentialInterval}.
    LEAD = 5
    # Lines that a verdict names.
    LINES = 5

    # The outcome: `above?`, how many iterations were measured, the figure of one (median, least, most), how many
    # bytes of the last one are of stacks of fibers, and the lines that made the rest of it, or allocated in it.
    Outcome = Struct.new(:above, :iterations, :per_iteration, :low, :high, :stacks, :lines, keyword_init: true) do
      alias_method :above?, :above
    end

    # @param figure [Symbol] `:allocated_bytes`, `:retained_bytes` or `:retained_objects`
    # @param limit [Integer]
    # @param iterations [Integer] most
    # @param warm_up [Integer] iterations before them
    # @param classes [Array<Class>] whose objects are counted
    def initialize(figure, limit:, iterations:, warm_up:, classes: [])
      @figure = figure
      @limit = limit
      @iterations = iterations
      @warm_up = warm_up
      @classes = classes
    end

    # @param block [Proc]
    # @return [Outcome]
    # @raise (see Rounds.during)
    def run(block)
      Rounds.during(block) do |rounds|
        rounds.run(@warm_up)
        interval = SequentialInterval.new(@limit, LEAD)
        while interval.verdict.nil? && interval.readings.size < @iterations
          moment = rounds.moment
          interval.add(send(@figure, rounds, moment))
        end
        rounds.confirm
        verdict(rounds, moment, interval)
      end
    end

    private

    def allocated_bytes(rounds, _moment)
      bytes, @allocating = rounds.allocating(LINES)
      bytes
    end

    def retained_bytes(rounds, moment)
      rounds.run(1)
      rounds.collect
      left = rounds.left([moment]).first
      @stacks = left.stack_bytes
      left.bytes
    end

    def retained_objects(rounds, moment)
      rounds.run(1)
      rounds.collect
      rounds.count(moment, @classes)
    end

    def verdict(rounds, moment, interval)
      median = Statistics.median(interval.readings)
      low, high = interval.interval || interval.readings.minmax
      above = interval.verdict ? interval.verdict == :above : median > @limit
      Outcome.new(above: above, iterations: interval.readings.size, per_iteration: median, low: low, high: high,
                  stacks: @stacks || 0, lines: above ? @allocating || rounds.lines(moment, LINES) : [])
    end
  end
end
