# frozen_string_literal: true

require_relative "../../support/copy_lines"

module Memintro
  class Leaks
    # What the frozen copy has found for a search for leaked blocks.
    # @api private
    class Lines < CopyLines
      # Numbers in a line.
      SHAPES = {
        "unreadable" => 1, "registers" => 3, "doubted" => 1, "kept_back" => 1, "no_pagemap" => 1, "followed" => 1,
        "sampled" => 1,
        "glibc" => 1, "busy" => 1, "broken" => 1, "arena" => 8, "tcache" => 4, "fast" => 3, "mmapped" => 3,
        "chunks" => 1, "given_up" => 1, "searched" => 2, "scanned" => 2, "group" => 9, "words" => 9, "verdict" => 4,
        "anchored" => 11, "anchored_all" => 2, "owner" => 5, "stage" => 1, "lost" => 1
      }.freeze
      # Words after whose numbers a name follows.
      NAMED = %w[broken].freeze
      # Words whose first number is an address.
      ADDRESSED = %w[words].freeze
    end
  end
end
