# frozen_string_literal: true

require_relative "../support/names"

module Memintro
  module CLI
    # An output for texts of other processes. It removes all control sequences except the colours of reports.
    class Printed
      # @param out [IO]
      # @param format [String] text, json or html
      def initialize(out, format)
        @out = out
        @format = format
      end

      # @return [Boolean]
      def tty?
        @out.respond_to?(:tty?) && @out.tty?
      end

      # @param texts [Array<String>] whole characters each
      # @return [Integer] bytes
      def write(*texts)
        texts.sum { |text| @out.write(harmless(text.to_s)) }
      end

      # @param lines [Array<String>]
      # @return [nil]
      def puts(*lines)
        lines.push("") if lines.empty?
        lines.each { |line| write(line.end_with?("\n") ? line : "#{line}\n") }
        nil
      end

      private

      # memintro makes the page itself, and escapes all texts in it.
      def harmless(text)
        case @format
        when "html" then text
        when "json" then Names.json(Names.utf8(text))
        else Names.lines(text, colour: tty?)
        end
      end
    end
  end
end
