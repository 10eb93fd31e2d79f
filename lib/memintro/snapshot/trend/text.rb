# frozen_string_literal: true

require_relative "../../support/names"
require_relative "../../support/style"
require_relative "../../support/table"
require_relative "../../support/units"

module Memintro
  class Trend
    # What grows, as a text for people: a verdict, then a table.
    class Text
      # Titles of the columns of figures.
      HEADS = ["a minute", "sure", "each step", "first", "last"].freeze
      # Title of the column of names.
      LAST = "what"

      # @param share [Float] from 0 to 1
      # @return [String] such as `"99%"`, `"99.9%"`
      def self.percent(share)
        "#{format('%.1f', share * 100).delete_suffix('.0')}%"
      end

      # @param trend [Trend]
      # @param top [Integer, nil] rows; nil: all
      def initialize(trend, top: DEFAULT_TOP)
        @trend = trend
        @top = top
        @names = Names.new
      end

      # @param style [Style]
      # @return [String]
      def text(style)
        rows, rest = shown
        table = Table.new(HEADS, LAST, rows.map { |one| [*cells(one), short(one)] }).lines(style)
        [style.bold(header), *@trend.notes.map { |note| style.warn("note: ") + note }, introduction,
         *(["", *table] unless rows.empty?), *(["", rest] if rest), ""].join("\n")
      end

      # @return [String]
      def header
        process = @trend.snapshots.last.process
        "memintro #{process[:memintro]}: #{@trend.snapshots.size} snapshots in #{duration}, " \
          "pid #{process[:pid]}, ruby #{process[:ruby]}"
      end

      # @return [String]
      def duration
        Units.duration(@trend.minutes.last * 60)
      end

      # @return [String] a sentence, without its full stop
      def verdict
        sure = @trend.growing.size
        return "Nothing has grown" if @trend.series.empty?
        return "Nothing grows with #{asked} certainty" if sure.zero?

        "#{Units.counted(sure, 'figure')} #{Units.noun(sure, 'grows', 'grow')}, at least #{asked} sure (Mann-Kendall)"
      end

      # @return [Array(Array<Series>, String)] those to show, and a sentence about the others or nil
      def shown
        sure = @trend.growing
        all = sure.empty? ? @trend.series : sure
        left = @top ? [all.size - @top, 0].max : 0
        [all.first(all.size - left), left.positive? ? "#{Units.count(left)} more" : nil]
      end

      # @param series [Series]
      # @return [Array<String>] what stands under {HEADS}
      def cells(series)
        [series.slope_text, self.class.percent(series.confidence), series.every_step ? "yes" : "", *series.ends]
      end

      # @param series [Series]
      # @return [String] what stands under {LAST}: printable, with a shortened path
      def short(series)
        paths = %i[call_sites object_sites iseqs].include?(series.section)
        name = paths ? @names.shortened(series.name) : Names.printable(series.name)
        "#{Diff::Sections::LAST.fetch(series.section, 'GC')} #{name}"
      end

      private

      def introduction
        return "#{verdict}." if @trend.series.empty?
        return "#{verdict}. Larger than in the first snapshot:" if @trend.growing.empty?

        "#{verdict}, by so much a minute (Theil-Sen):"
      end

      def asked
        self.class.percent(@trend.confidence)
      end
    end
  end
end
