# frozen_string_literal: true

module Memintro
  class Diff
    # Finds where a kind of thing grew: at one place, in the files of one folder, or in many places.
    class Spread
      # The share of the growth from which a place is named as its place.
      MOST = 0.5
      # A folder is narrowed down while its content has at least this share.
      FOLDER = 0.8
      # From this share on, it counts as all of the growth.
      NEARLY_ALL = 0.98
      private_constant :MOST, :FOLDER, :NEARLY_ALL

      # @return [Array<Change>] what grew, most first
      attr_reader :grown

      # @param changes [Array<Change>]
      # @param total [Integer] growth of all; a list that was cut short may come to less
      def initialize(changes, total)
        @grown = changes.select { |change| change.growth.positive? }.sort_by { |change| -change.growth }
        @whole = [total, @grown.sum(&:growth)].max
      end

      # @return [Change, nil] the one place that has most of it
      def place
        @grown.first if @grown.any? && @grown.first.growth >= @whole * MOST
      end

      # @return [String] how much of it that place has, in a word
      def share
        return "all" if @grown.size == 1 && @grown.first.growth == @whole

        place.growth >= @whole * NEARLY_ALL ? "nearly all" : "most"
      end

      # @return [Array(String, Array<Change>), nil] the deepest folder that most of it is in, and what grew there; nil
      #   if there is none with several, or one place has most
      def folder
        return if place || @grown.size < 2

        deepest = sums.select { |_, growth| growth >= @whole * FOLDER }.keys.max_by(&:size)
        inside = deepest ? @grown.select { |change| change.name.b.start_with?(deepest) } : []
        [deepest, inside] if inside.size > 1
      end

      # @param inside [Array<Change>]
      # @return [Boolean] whether nothing grew elsewhere
      def all_in?(inside)
        inside.size == @grown.size && inside.sum(&:growth) == @whole
      end

      private

      # Growth by folder, with the growth of the folders below it.
      def sums
        @grown.each_with_object(Hash.new(0)) do |change, sums|
          folders(change.name.b) { |folder| sums[folder] += change.growth }
        end
      end

      # With a trailing slash; the root folder is left out, because it says nothing.
      def folders(name)
        at = name.rindex("/")
        while at&.positive?
          yield name[0..at]
          at = name.rindex("/", at - 1)
        end
      end
    end
  end
end
