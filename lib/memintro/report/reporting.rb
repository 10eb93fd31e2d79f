# frozen_string_literal: true

require_relative "../runtime/loader"
require_relative "../runtime/main_ractor"
require_relative "../support/brake"
require_relative "../support/defaults"
require_relative "short_report"

module Memintro
  # `Memintro.report`. {Memintro} is extended with it.
  module Reporting
    # Writes a report about this process.
    #
    # @param io [#write]
    # @param format [Symbol] `:text`, a table to read; `:json`; `:html`, a page with a flame graph; `:folded`, a line
    #   for each stack, as tools for flame graphs read them; `:speedscope`, for www.speedscope.app
    # @param top [Integer, nil] how many call sites; nil: all, the default for all formats but `:text`
    # @param by [Symbol] figure to sort by, one of {CallSite::FIGURES}
    # @param app_root [String, nil] folder that paths are shown relative to; nil: as configured, else the current one
    # @return [nil]
    # @raise [ArgumentError, TypeError]
    def report(io = $stdout, format: :text, top: Defaults.top(format), by: default_figure, app_root: nil)
      MainRactor.only
      untracked do
        root = app_root || setting(:app_root)
        if format.to_s == "text" && io.respond_to?(:write) && plain?(top, by, root)
          ShortReport.write(io, by.to_sym, top, root, colour?(io))
        else
          long_report(io, format, top, by, root)
        end
      end
      nil
    end

    private

    # Whether no argument is wrong.
    def plain?(top, by, root)
      Native.sortable?(by.to_s) && (top.nil? || (top.is_a?(Integer) && top.between?(0, 2**32))) &&
        (root.nil? || root.is_a?(String))
    end

    # Only a terminal is worth another file, and no file is worth a report.
    def colour?(io)
      return false unless io.respond_to?(:tty?) && io.tty?

      Loader.need(:Style)
      Style.colour?(io)
    rescue IOError, Error
      false
    end

    def long_report(io, format, top, by, root)
      Loader.need(:Report)
      Arguments.output(io)
      Arguments.count(:top, top, optional: true)
      by = Arguments.choice(:by, by, CallSite::FIGURES)
      format = Arguments.choice(:format, format, Report::FORMATS)
      # A page has the sites beyond `top` as one frame.
      report = Native::Report.take(ProcessFacts.now, by, format == :html ? nil : top, nil, true)
      Report.write(report, io, format: format, top: top, by: by, app_root: root)
    ensure
      report&.clear
    end
  end
end
