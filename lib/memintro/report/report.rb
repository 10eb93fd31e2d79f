# frozen_string_literal: true

require_relative "../support/advice"
require_relative "../support/arguments"
require_relative "../support/defaults"
require_relative "../support/style"
require_relative "../malloc/call_site"

module Memintro
  # The formats of a report. The extension writes all of them from a Native::Report, which does not depend on the
  # process it came from.
  module Report
    # Names of the formats.
    FORMATS = Defaults::FORMATS.keys.freeze
    # Default number of call sites in a table.
    DEFAULT_TOP = Defaults::TOP
    # Most bytes that are given to an output at a time.
    PIECE = 1 << 20
    private_constant :PIECE

    # @param format [Symbol]
    # @return [Integer, nil] how many call sites that format shows by default; nil: all
    def self.default_top(format) = Defaults.top(format)

    # @param text [String] JSON, or a raw dump
    # @return [Native::Report]
    # @raise [DumpError] if it is something else
    def self.read(text) = Native::Report.read(text)

    # @param text [String] JSON in which only blocks and objects count that outlived this number of collections
    # @param collections [Integer]
    # @return [Native::Report]
    # @raise [DumpError] if it is something else
    def self.read_old(text, collections) = Native::Report.read_old(text, collections)

    # @param reports [Array<Native::Report>] the master's first
    # @return [Native::Report]
    def self.sum(reports) = Native::Report.sum(reports)

    # @param report [Native::Report] sites that it does not show are forgotten
    # @param io [#write]
    # @param format [Symbol] one of {FORMATS}
    # @param top [Integer, nil] how many call sites; nil: all
    # @param by [Symbol, nil] figure to sort by; nil: the default of the report
    # @param app_root [String, nil] folder that paths are shown relative to; nil: the current one
    # @return [nil]
    # @raise [ArgumentError, TypeError]
    def self.write(report, io, format: :text, top: default_top(format), by: nil, app_root: nil)
      Arguments.output(io)
      format = Arguments.choice(:format, format, FORMATS)
      Arguments.count(:top, top, optional: true)
      by = Arguments.choice(:by, by.nil? ? report.default_figure : by, CallSite::FIGURES)
      app_root = Arguments.text(:app_root, app_root, optional: true)
      colour = format == :text && Style.colour?(io)
      text = report.write(format, by, top, app_root, [colour, Advice.names_commands?])
      while (piece = text.piece(PIECE))
        io.write(piece)
      end
      nil
    ensure
      text&.clear
    end
  end
end
