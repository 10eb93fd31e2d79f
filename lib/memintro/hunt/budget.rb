# frozen_string_literal: true

module Memintro
  class Hunt
    # What a hunt may take of a processor, and what it has taken: no look begins while it has taken more than its share
    # of the time since it began. An investigation may overdraw, and is paid back before the next look.
    #
    # @api private
    class Budget
      # Part of one core.
      SHARE = 0.002
      # A copy may end a moment after it has answered: how often that is looked for, and after how many seconds.
      LOOKS = 20
      MOMENT = 0.05
      private_constant :LOOKS, :MOMENT

      # @return [Float] seconds of processor time so far
      attr_reader :spent

      # @param clock [Clock]
      def initialize(clock)
        @clock = clock
        @begun = clock.now
        @spent = 0.0
      end

      # Counts what the block takes, also if it raises.
      # @return [Object] the block's value
      def charge
        before = @clock.cpu
        yield
      ensure
        @spent += @clock.cpu - before
      end

      # Counts what the copy of the process takes that the block waits for: the processor time of children that have
      # ended meanwhile, but not more than the time that the block waits, and all of this if none has ended.
      # @return [Object] the block's value
      def charge_copy
        before = @clock.now
        cpu = @clock.cpu
        children = @clock.children_cpu
        yield
      ensure
        # What this thread computes meanwhile is counted by {charge}.
        waited = [@clock.now - before - (@clock.cpu - cpu), 0].max
        @spent += [(copy_cpu(children) if waited.positive?), waited].compact.min
      end

      # @return [Float] seconds since it began
      def elapsed
        @clock.now - @begun
      end

      # @return [Float] what was taken of one core so far, from 0 to 1
      def share
        elapsed.positive? ? @spent / elapsed : 0.0
      end

      # @param every [Numeric] seconds that are wanted
      # @return [Float] seconds to the next look
      def pause(every)
        [every.to_f, (@spent / SHARE) - elapsed].max
      end

      private

      # @return [Float, nil] nil: none has ended
      def copy_cpu(before)
        LOOKS.times do
          more = @clock.children_cpu - before
          return more if more.positive?

          sleep(MOMENT)
        end
        nil
      end
    end
  end
end
