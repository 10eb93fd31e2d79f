# frozen_string_literal: true

require_relative "../version"

module Memintro
  # The text of a report, where the extension writes it: it takes no other files.
  # @api private
  module ShortReport
    # @param io [#write]
    # @param by [Symbol] what it is sorted by
    # @param top [Integer, nil] how many call sites; nil: all
    # @param root [String, nil] folder that paths are shown relative to; nil: the current one
    # @param colour [Boolean]
    # @return [Boolean] whether it was written: there may be more to tell than it can
    def self.write(io, by, top, root, colour)
      facts = [VERSION, Process.pid, RUBY_VERSION, Time.now.utc.strftime("%FT%TZ"), $PROGRAM_NAME]
      text = Native.report_text(facts, by, top, root, colour)
      return false unless text

      # The text takes memory of its own.
      Native.give_pages_back
      io.write(text)
      true
    end
  end
end
