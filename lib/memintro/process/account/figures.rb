# frozen_string_literal: true

require_relative "../../error"
require_relative "../../support/copy_lines"

module Memintro
  class Account
    # What the frozen copy has counted for an account.
    # @api private
    class Figures < CopyLines
      # Numbers in a line.
      SHAPES = {
        "own_pages" => 5, "own_code" => 3, "fibers" => 2, "reached_all" => 3, "reached" => 3, "rss" => 1,
        "pagemap" => 1, "zero" => 1, "own" => 1, "file" => 2, "bss" => 1, "other" => 1, "code" => 1,
        "heap_live" => 1, "heap_free" => 1, "heap_empty" => 2, "heap_pages" => 1, "stack" => 2, "glibc" => 1,
        "ranges" => 1, "busy" => 1, "broken" => 1, "arena" => 8, "tcache" => 4, "fast" => 3,
        "bin" => 3, "tcache_bin" => 3, "fast_bin" => 3, "mmapped" => 3, "counted" => 2, "anonymous" => 1, "type" => 3,
        "imemo" => 3, "searched" => 1, "site" => 4, "stage" => 1, "lost" => 1
      }.freeze
      # Words after whose numbers a name follows.
      NAMED = %w[file bss stack broken type imemo reached].freeze
      # Between the figures of all pages and those of shared pages alone.
      AGAIN = "\nagain 1\n"
      private_constant :AGAIN

      # @param text [String] of both
      # @return [Array(Figures, Figures)] of all pages, and of shared ones; the second is nil where that was not counted
      def self.both(text)
        # The text of a copy that could not begin is empty.
        all, again, shared = text.force_encoding(Encoding::BINARY).partition(AGAIN)
        [new(all), (new(shared) unless again.empty?)]
      end
    end
  end
end
