# frozen_string_literal: true

require_relative "../malloc/call_sites"
require_relative "../support/names"
require_relative "../support/units"

module Memintro
  module Report
    # Who calls the top lines: the heaviest stacks of each, where whole stacks were tracked.
    class Callers
      # Lines that get their callers, stacks of each, and callers of a stack that are shown.
      LINES = 5
      STACKS = 3
      FRAMES = 4
      # Figures that are bytes.
      private_constant :LINES, :STACKS, :FRAMES

      # @param call_sites [CallSites]
      # @param names [Names]
      # @param by [Symbol]
      def initialize(call_sites, names, by)
        @stacks = call_sites.stacks
        @names = names
        @by = by
      end

      # @param sites [Array<CallSite>] lines, greatest first
      # @param style [Style]
      # @return [Array<String>] nothing where there are no stacks
      def lines(sites, style)
        return [] unless @stacks

        rows = @stacks.rows.select { |row| row[SiteRow::STACK] }
        by_line = rows.group_by { |row| [row[SiteRow::NAME], row[SiteRow::LINENO]] }
        shown = sites.select { |site| by_line.key?([site.path, site.lineno]) }.first(LINES)
        return [] if shown.empty?

        ["", style.bold("Their heaviest callers:"),
         *shown.flat_map { |site| callers(site, by_line.fetch([site.path, site.lineno])) }]
      end

      private

      def callers(site, rows)
        figure = CallSites::FIGURES.fetch(@by)
        top = rows.min_by(STACKS) { |row| [-figure.call(row), row[SiteRow::ID]] }
        [@names.short(site), *top.map { |row| caller(CallSite.new(row)) }]
      end

      def caller(site)
        shown = ->(figure) { Figures[@by].bytes? ? Units.bytes(figure) : Units.count(figure.round) }
        callers = site.stack.drop(1)
        named = callers.first(FRAMES).map do |frame|
          "#{"#{Names.printable(frame.label)} " if frame.label}#{@names.shortened("#{frame.path}:#{frame.line}")}"
        end
        named << "#{callers.size - FRAMES} more" if callers.size > FRAMES
        format("  %10s  %s", shown.call(site[@by]), named.empty? ? "no caller" : named.join(" < "))
      end
    end
  end
end
