# frozen_string_literal: true

require_relative "../support/process_facts"

module Memintro
  # The text of a report, where the extension writes it: it takes no other files.
  # @api private
  module ShortReport
    # @param io [#write]
    # @param by [Symbol] figure to sort by
    # @param top [Integer, nil] how many call sites; nil: all
    # @param root [String, nil] folder that paths are shown relative to; nil: the current one
    # @param colour [Boolean]
    # @return [nil]
    def self.write(io, by, top, root, colour)
      text = Native.report_text(ProcessFacts.now, by, top, root, colour)
      io.write(text)
      nil
    end
  end
end
