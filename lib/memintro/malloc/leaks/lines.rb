# frozen_string_literal: true

module Memintro
  class Leaks
    # The text that the frozen copy has written: a word and numbers in each line, read as that of a stranger.
    # @api private
    class Lines
      # Numbers in a line; a name may follow in `broken`.
      SHAPES = {
        "unreadable" => 1, "kept_back" => 1, "no_pagemap" => 1, "followed" => 1, "sampled" => 1, "glibc" => 1,
        "busy" => 1, "broken" => 1, "arena" => 8, "tcache" => 4, "fast" => 3, "mmapped" => 3, "chunks" => 1,
        "searched" => 2, "scanned" => 2, "group" => 9, "words" => 9, "verdict" => 4, "anchored" => 6,
        "anchored_all" => 2, "stage" => 1, "lost" => 1
      }.freeze
      NUMBER = /\A\d{1,20}\z/.freeze
      private_constant :SHAPES, :NUMBER

      # @param text [String]
      def initialize(text)
        @rows = Hash.new { |rows, key| rows[key] = [] }
        text.each_line(chomp: true) { |line| read(line) }
        @rows.default = [].freeze
        freeze
      end

      # @param key [String]
      # @return [Array<Array<Integer>>]
      def all(key)
        @rows[key]
      end

      # @param key [String]
      # @param place [Integer] of the number
      # @return [Integer]
      def sum(key, place = 0)
        @rows[key].sum { |row| row[place] }
      end

      private

      def read(line)
        key, *words = line.split
        count = SHAPES[key]
        numbers = words.first(count || 0)
        return if count.nil? || numbers.size != count || !numbers.all?(NUMBER)

        # The first of these is an address. As an Integer it would point to the block.
        address = numbers.shift if key == "words"
        @rows[key] << [*address, *numbers.map { |number| Integer(number, 10) }].freeze
      end
    end
  end
end
