# frozen_string_literal: true

require_relative "../support/names"

module Memintro
  module Report
    # The native callers of the sites of a table, each below the row of its site.
    class NativeCallers
      # What the shares are worth.
      CAUTION = "\"via\" names the C functions that asked malloc, by samples of single allocations: estimates."
      # Most callers of a site that are shown, and the least share that one must have: of what is shown of it, and of
      # the samples, for one sample in forty says little of a share.
      MOST = 3
      LEAST = 0.05
      private_constant :MOST, :LEAST

      def initialize
        @is_any = false
      end

      # @return [Boolean] whether {#lines} has added any
      def any? = @is_any

      # @param table [Array<String>] the titles, and a line for each site
      # @param sites [Array<CallSite>]
      # @return [Array<String>] the table with what is known of native callers
      def lines(table, sites)
        head, *rows = table
        [head, *rows.zip(sites).flat_map { |row, site| [row, *callers(site)] }]
      end

      private

      def callers(site)
        least = LEAST * site.native_caller_samples.to_i
        shown = site.native_callers.select do |caller|
          (caller.live_share || caller.share) >= LEAST && caller.samples >= least
        end
        return [] if shown.all? { |caller| caller.frames.empty? }

        @is_any = true
        shown.first(MOST).map { |caller| "    via #{line(caller, site)}" }
      end

      def line(caller, site)
        place = "#{Names.printable(caller.path)}#{" (#{Names.printable(caller.location)})" if caller.location}"
        parts = [caller.live_share && "~#{percent(caller.live_share)} of live bytes",
                 "~#{percent(caller.share)} of allocations"].compact
        "#{place}: #{parts.join(', ')} (#{caller.samples} of #{site.native_caller_samples} samples)"
      end

      def percent(part) = "#{(part * 100).round}%"
    end
  end
end
