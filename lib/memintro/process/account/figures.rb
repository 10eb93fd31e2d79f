# frozen_string_literal: true

require_relative "../../error"

module Memintro
  class Account
    # The text that the frozen copy has written: a word and numbers in each line, read as that of a stranger.
    # @api private
    class Figures
      # Numbers in a line, and whether a name follows them.
      SHAPES = {
        "rss" => [1, false], "pagemap" => [1, false], "zero" => [1, false], "own" => [1, false],
        "file" => [2, true], "bss" => [1, true], "other" => [1, false], "code" => [1, false], "heap_live" => [1, false],
        "heap_free" => [1, false], "heap_empty" => [2, false], "heap_pages" => [1, false], "stack" => [2, true],
        "glibc" => [1, false], "busy" => [1, false], "broken" => [1, true], "arena" => [9, false],
        "tcache" => [4, false], "fast" => [3, false], "mmapped" => [3, false], "anonymous" => [1, false],
        "type" => [3, true], "imemo" => [3, true], "searched" => [1, false],
        "site" => [4, false], "stage" => [1, false], "lost" => [1, false]
      }.freeze
      NUMBER = /\A\d{1,18}\z/.freeze
      private_constant :SHAPES, :NUMBER

      # @param text [String]
      def initialize(text)
        @rows = Hash.new { |rows, key| rows[key] = [] }
        text.each_line(chomp: true) { |line| read(line) }
        @rows.default = [].freeze
        freeze
      end

      # @param key [String]
      # @return [Array<Array>] numbers, and the name
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
        key, rest = line.split(" ", 2)
        count, named = SHAPES[key]
        return if count.nil? || rest.nil?

        words = rest.split(" ", named ? count + 1 : -1)
        numbers = words.first(count)
        return unless numbers.size == count && numbers.all?(NUMBER)

        @rows[key] << [*numbers.map { |number| Integer(number, 10) }, *(words[count] || "" if named)].freeze
      end
    end
  end
end
