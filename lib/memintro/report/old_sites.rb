# frozen_string_literal: true

require_relative "report"
require_relative "../support/estimates"
require_relative "../support/names"
require_relative "../support/style"
require_relative "../support/units"
require_relative "../support/table"

module Memintro
  module Report
    # A table of call sites that counts only blocks of at least some age.
    module OldSites
      # @param sites [Array<CallSite>]
      # @param names [Names]
      # @param style [Style]
      # @param sample_bytes [Integer, nil]
      # @return [Array<String>]
      def self.lines(sites, names, style, sample_bytes)
        rows = sites.map do |site|
          [site.shown(:live_bytes, &Units.method(:bytes)), site.shown(:live_blocks, &Units.method(:count)),
           names.short(site)]
        end
        lines = Table.new(%w[live blocks], "call site", rows).lines(style)
        return lines unless sites.any?(&:estimated?)

        [*lines, "", style.warn("note: ") + Estimates.caution(sample_bytes)]
      end
    end
  end
end
