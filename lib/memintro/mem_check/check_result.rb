# frozen_string_literal: true

require_relative "../support/names"
require_relative "../support/units"

module Memintro
  module MemCheck
    # The text of a check's result: the verdict first, then each finding, then the next step.
    # @api private
    class CheckResult
      # Findings that are shown.
      MOST = 50
      # Kinds whose blocks are lost, or will be lost with their object.
      LOST = %w[leak indirect no_free].freeze
      private_constant :MOST, :LOST

      def initialize(config:, status:, found:, fresh:, known:, suppressed:, gone:, trouble:)
        @config = config
        @status = status
        @found = found
        @fresh = fresh.sort_by { |one| [-one.bytes, -one.blocks, one.title] }
        @known = known
        @suppressed = suppressed
        @gone = gone
        @trouble = trouble
      end

      # @return [Array<String>]
      def lines
        ["mem_check: #{first} #{tests}", *findings, *rest]
      end

      private

      def first
        return "no verdict on #{@config.called}: #{@trouble}." if @trouble && @fresh.empty?
        return "#{Units.counted(@fresh.size, 'finding')} in #{@config.called}#{sum}." unless @fresh.empty?

        "nothing found in #{@config.called}#{looked}."
      end

      def sum
        lost = @fresh.select { |one| LOST.include?(one.kind) }
        lost.empty? ? "" : ": #{Units.counted(lost.sum(&:blocks), 'block')} (#{Units.bytes(lost.sum(&:bytes))}) lost"
      end

      def looked
        blocks = @found.live_blocks
        blocks ? ", whose stacks have #{Units.counted(blocks, 'live block')}" : ""
      end

      def tests
        return "The tests passed." if @status.zero?
        return "The tests were ended by signal #{@status - 128}." if @status > 128

        "The tests failed (status #{@status})."
      end

      def findings
        shown = @fresh.first(MOST).flat_map.with_index(1) do |one, number|
          first, *rest = one.lines
          ["", "#{number}. #{first}", *rest]
        end
        @fresh.size > MOST ? [*shown, "", "and #{@fresh.size - MOST} more"] : shown
      end

      def rest
        lines = []
        lines << "not complete: #{@trouble}" if @trouble && !@fresh.empty?
        lines << "#{Units.counted(@suppressed, 'finding')} suppressed" if @suppressed.positive?
        if @known.positive?
          lines << "#{Units.counted(@known, 'finding')} accepted by #{Names.printable(@config.baseline.b)}"
        end
        if @gone.positive?
          lines << "#{Units.counted(@gone, 'accepted finding')} did not come up: MEMINTRO_UPDATE_BASELINE=1 takes " \
                   "them out"
        end
        lines.concat(@found.notes)
        lines << advice if advice
        lines.empty? ? [] : ["", *lines]
      end

      def advice
        return if @fresh.empty?
        return "next: correct the first one and run this task again" unless @config.baseline

        "next: correct them, or accept them with MEMINTRO_UPDATE_BASELINE=1"
      end
    end
  end
end
