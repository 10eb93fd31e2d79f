# frozen_string_literal: true

require_relative "stack_table"
require_relative "../support/names"

module Memintro
  module Report
    # The report for tools that draw flame graphs: a line for each stack, its frames from the root on with `;` between
    # them, a blank, and a figure. Stacks whose figure is not above zero are left out.
    class Folded
      # What would be taken for the end of a frame or of a line.
      UNSAFE = /[;\n\r]/
      private_constant :UNSAFE

      # @param call_sites [CallSites]
      # @param by [Symbol] which figure
      def initialize(call_sites, top: nil, by: :live_bytes, app_root: nil)
        @call_sites = call_sites.stacks || call_sites
        @top = top
        @by = by
        @names = Names.new(app_root)
      end

      # @param io [#write]
      # @return [nil]
      def write(io)
        sums = Hash.new(0)
        @call_sites.top(@top, by: @by).each do |site|
          figure = site[@by].round
          sums[StackTable.frames_of(site)] += figure if figure.positive?
        end
        io.write(sums.map { |frames, figure| "#{frames.map { |frame| text(frame) }.join(';')} #{figure}\n" }.join)
        nil
      end

      private

      # Tools cut a line at its last blank, so blanks within frames are kept.
      def text(frame)
        path, line, label = frame
        place = line.zero? ? path : "#{@names.shortened(path)}:#{line}"
        Names.printable(label ? "#{label} (#{place})" : place).gsub(UNSAFE) { |one| format("%%%02X", one.ord) }
      end
    end
  end
end
