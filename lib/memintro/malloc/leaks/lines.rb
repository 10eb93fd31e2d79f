# frozen_string_literal: true

require_relative "../../support/copy_lines"

module Memintro
  # What the frozen copy has found for a search for leaked blocks.
  # @api private
  class LeakLines < CopyLines
    # Numbers in a line.
    SHAPES = {
      "unreadable" => 1, "registers" => 3, "doubted" => 1, "kept_back" => 1, "no_pagemap" => 1, "followed" => 1,
      "sampled" => 1,
      "glibc" => 1, "busy" => 1, "broken" => 1, "arena" => 8, "tcache" => 4, "fast" => 3, "mmapped" => 3,
      "chunks" => 1, "given_up" => 1, "searched" => 2, "scanned" => 2, "group" => 9, "words" => 9, "verdict" => 4,
      "anchored" => 11, "anchored_all" => 2, "owner" => 7, "stage" => 1, "lost" => 1
    }.freeze
    # Instead of the number of a call site.
    NO_SITE = (2**32) - 1
    # The kind of a Ruby object (ext/memintro/src/leaks/roots.rs).
    OBJECT = 3
    # Classes whose objects own most.
    MOST_CLASSES = 40
    private_constant :MOST_CLASSES
    # Words after whose numbers a name follows.
    NAMED = %w[broken].freeze
    # Words whose first number is an address.
    ADDRESSED = %w[words].freeze

    # Which objects own blocks.
    # @return [Array(Hash, Hash)] by the class' address: objects, blocks, bytes, objects of which Ruby does not know
    #   the size, those that were made while memintro tracked, and bytes that were; and bytes by the site's number
    def owned
      classes = all("owner").first(MOST_CLASSES).to_h { |address, *figures| [address, figures] }
      sites = classes.transform_values { Hash.new(0) }
      all("anchored").each do |id, _, _, *holders|
        holders.each_slice(4) do |kind, label, bytes,|
          sites[label][id] += bytes if kind == OBJECT && id != NO_SITE && sites.key?(label)
        end
      end
      [classes, sites]
    end
  end
end
