# frozen_string_literal: true

require_relative "../support/arguments"
require_relative "../malloc/call_site"
require_relative "json"
require_relative "text"

module Memintro
  # The formats of a report. Each is a class with one method, `write`, that takes a {CallSites} and does not depend on
  # the process it came from.
  module Report
    # Format names and their classes.
    FORMATS = { text: Text, json: Json }.freeze
    # Default number of call sites in a table: as many as fit a screen.
    DEFAULT_TOP = 20

    # @param format [Symbol]
    # @return [Integer, nil] how many call sites that format shows by default; nil: all
    def self.default_top(format)
      format.to_s == "json" ? nil : DEFAULT_TOP
    end

    # @param call_sites [CallSites]
    # @param io [#write]
    # @return [nil]
    # @raise [ArgumentError, TypeError]
    def self.write(call_sites, io, format: :text, top: default_top(format), by: :live_bytes, app_root: nil)
      Arguments.output(io)
      renderer = FORMATS.fetch(Arguments.choice(:format, format, FORMATS.keys))
      Arguments.count(:top, top, optional: true)
      renderer.new(call_sites, top: top, by: Arguments.choice(:by, by, CallSite::FIGURES),
                               app_root: Arguments.text(:app_root, app_root, optional: true)).write(io)
      nil
    end
  end
end
