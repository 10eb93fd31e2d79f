# frozen_string_literal: true

module Memintro
  # Decides whether a figure is above a limit from several readings, some of which may be disturbed: a cache grew, or
  # the collector took a stale word for an object.
  #
  # It is Wald's sequential test of signs. Readings above the limit are counted against the others, until one side leads
  # by `lead`. If at most one reading in four is disturbed, either verdict is wrong with a probability of at most
  # 1 / (1 + 3 ** lead): below 1 in 59,000 for a lead of ten. With one in ten, it is 1 / (1 + 9 ** lead): the same for a
  # lead of five. All limits for which there is no verdict are the interval.
  # @api private
  class SequentialInterval
    # @return [Array<Numeric>]
    attr_reader :readings

    # @param limit [Numeric]
    # @param lead [Integer]
    # @param readings [Array<Numeric>]
    def initialize(limit, lead, readings = [])
      @limit = limit
      @lead = lead
      @readings = readings
    end

    # @return [self]
    def add(reading)
      @readings << reading
      self
    end

    # @return [Array(Numeric, Numeric), nil] from the least to the most that the figure is likely to be; nil after fewer
    #   readings than the lead
    def interval
      size = readings.size
      return if size < @lead

      outside = (size - @lead) / 2
      sorted = readings.sort
      [sorted[outside], sorted[-1 - outside]]
    end

    # @return [Symbol, nil] `:above` or `:below` (which is also at the limit); nil: more readings are needed
    def verdict
      low, high = interval
      return if low.nil?
      return :above if low > @limit

      :below if high <= @limit
    end
  end
end
