# frozen_string_literal: true

require_relative "../runtime/background"

module Memintro
  class Hunt
    # Calls `on_finding`, which belongs to the program: it may raise, hang or end its thread. So each call has its own
    # short-lived thread, and only one call runs at a time.
    #
    # @api private
    class Callback
      # Seconds to wait for it.
      PATIENCE = 10
      private_constant :PATIENCE

      # @param called [#call]
      # @yieldparam trouble [String] what went wrong
      def initialize(called, &complain)
        @called = called
        @complain = complain
      end

      # @param finding [Finding]
      # @return [nil]
      def call(finding)
        if @thread&.alive?
          @complain.call("on_finding has not returned from an earlier finding, and was not called for this one")
        else
          @thread = start(finding)
          return if @thread.join(PATIENCE)

          @complain.call("on_finding has not returned after #{PATIENCE} s; the hunt continues")
        end
        nil
      end

      private

      def start(finding)
        called = @called
        complain = @complain
        thread = Thread.new do
          # The hunt's own thread blocks signals, and a new thread would inherit its mask.
          Native.accept_signals
          Thread.current.report_on_exception = false
          called.call(finding)
        rescue Exception => e # rubocop:disable Lint/RescueException -- it must not end more than itself
          Memintro.untracked { complain.call("on_finding raised #{e.class}: #{e.message}") }
        ensure
          Native.accept_signals # Ruby uses the native thread again
        end
        thread.name = "memintro-finding"
        thread
      end
    end
  end
end
