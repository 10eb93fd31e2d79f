# frozen_string_literal: true

module Memintro
  # The text that a frozen copy of the process has written: a word and numbers in each line. It is read as that of a
  # stranger, so lines of another shape are passed over.
  #
  # A class that inherits says in `SHAPES` how many numbers follow each word; in `NAMED`, after whose numbers a name
  # follows; and in `ADDRESSED`, whose first number is an address, which stays text: an Integer would point to a block.
  # @api private
  class CopyLines
    # Addresses in lines of most classes: none.
    ADDRESSED = [].freeze
    NUMBER = /\A\d{1,20}\z/.freeze
    private_constant :NUMBER

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
      count = self.class::SHAPES[key]
      return if count.nil? || rest.nil?

      named = self.class::NAMED.include?(key)
      words = rest.split(" ", named ? count + 1 : -1)
      numbers = words.first(count)
      return unless numbers.size == count && numbers.all?(NUMBER)

      address = numbers.shift if self.class::ADDRESSED.include?(key)
      name = words[count] || "" if named
      @rows[key] << [*address, *numbers.map { |number| Integer(number, 10) }, *name].freeze
    end
  end
end
