# frozen_string_literal: true

require_relative "../support/arguments"
require_relative "../support/defaults"
require_relative "../malloc/call_site"
require_relative "../runtime/loader"

module Memintro
  # The formats of a report. Each is a class with one method, `write`, that takes a {CallSites} and does not depend on
  # the process it came from.
  module Report
    # Names of the formats.
    FORMATS = %i[text json html folded speedscope].freeze
    # Their classes; a program that writes one of them need not hold both.
    CLASSES = { text: :Text, json: :Json, html: :Html, folded: :Folded, speedscope: :Speedscope }.freeze
    private_constant :CLASSES
    Loader.lazy(self, { Text: "report/text", Json: "report/json", Html: "report/html", Folded: "report/folded",
                        Speedscope: "report/speedscope", StackTable: "report/stack_table" })

    # Default number of call sites in a table.
    DEFAULT_TOP = Defaults::TOP

    # @param format [Symbol]
    # @return [Integer, nil] how many call sites that format shows by default; nil: all
    def self.default_top(format) = Defaults.top(format)

    # Loads what writing in a format takes, before a program leaves the folders of memintro.
    # @param format [Symbol] one of {FORMATS}
    # @return [nil]
    def self.prepare(format)
      Loader.need(CLASSES.fetch(format), within: self)
    end

    # @param call_sites [CallSites]
    # @param io [#write]
    # @return [nil]
    # @raise [ArgumentError, TypeError]
    def self.write(call_sites, io, format: :text, top: default_top(format), by: nil, app_root: nil)
      Arguments.output(io)
      format = Arguments.choice(:format, format, FORMATS)
      prepare(format)
      Arguments.count(:top, top, optional: true)
      by = Arguments.choice(:by, by.nil? ? call_sites.default_figure : by, CallSite::FIGURES)
      app_root = Arguments.text(:app_root, app_root, optional: true)
      const_get(CLASSES.fetch(format)).new(call_sites, top: top, by: by, app_root: app_root).write(io)
      nil
    end
  end
end
