# frozen_string_literal: true

module Memintro
  class Hunt
    # The processor time that a hunt may use, and has used. No look begins while the hunt has used more than its share
    # of the time since it began. An investigation may overdraw the budget; later looks wait until it is paid back.
    #
    # @api private
    class Budget
      # Part of one core.
      SHARE = 0.002
      # A copy may end a moment after its answer: how often the hunt checks for that, and after how many seconds.
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

      # Charges the processor time of the block, also if it raises.
      # @return [Object] the block's value
      def charge
        before = @clock.cpu
        yield
      ensure
        @spent += @clock.cpu - before
      end

      # Charges the processor time of the copy that the block waits for: the time of children that have ended
      # meanwhile, at most the time that the block waits; the whole wait if no child has ended.
      # @return [Object] the block's value
      def charge_copy
        before = @clock.now
        cpu = @clock.cpu
        children = @clock.children_cpu
        yield
      ensure
        # {charge} counts this thread's own time.
        waited = [@clock.now - before - (@clock.cpu - cpu), 0].max
        @spent += [(copy_cpu(children) if waited.positive?), waited].compact.min
      end

      # @return [Float] seconds since it began
      def elapsed
        @clock.now - @begun
      end

      # @return [Float] the part of one core that was used so far, from 0 to 1
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
