# frozen_string_literal: true

require_relative "../report/names"
require_relative "../report/style"
require_relative "../report/table"
require_relative "../units"
require_relative "sections"

module Memintro
  class Diff
    # What changed, for people: first a verdict, then a table for each list.
    class Text
      # How the verdict speaks of a list's first name.
      PLACES = { call_sites: "malloc at %s", iseqs: "instruction sequences of %s", classes: "objects of class %s",
                 internals: "internal objects of kind %s" }.freeze
      # Below this, nothing is worth a sentence.
      WORTH_A_WORD = 64 * 1024
      # Lists of counters, of which most tell nothing to somebody who looks for memory.
      COUNTERS = %i[malloc occupancy gc gc_heaps].freeze
      # Those that do; the others are shown with `top: nil`.
      TELLING = %w[count minor_gc_count major_gc_count time heap_live_slots heap_allocated_pages old_objects
                   total_allocated_objects total_freed_objects live_bytes live_blocks allocations frees].freeze
      private_constant :PLACES, :WORTH_A_WORD, :COUNTERS, :TELLING

      # @param diff [Diff]
      # @param top [Integer, nil] rows of each table; nil: all
      def initialize(diff, top: DEFAULT_TOP)
        @diff = diff
        @top = top
        @names = Report::Names.new
      end

      # @param diff [Diff]
      # @return [String] also where the one given as the later is the older, as a note says then
      def self.period(diff)
        "#{Units.duration(diff.seconds.abs)}#{', backwards' if diff.seconds.negative?}"
      end

      # @param io [#write, nil] where it will go, for colours
      # @return [String]
      def text(io = nil)
        style = io ? Report::Style.for(io) : Report::Style.new(false)
        tables = @diff.sections.flat_map { |name, changes| table(name, changes, style) }
        [style.bold(header), program, *verdict, *@diff.notes.map { |note| style.warn("note: ") + note },
         *tables].compact.join("\n") << "\n"
      end

      # @return [Array<String>] sentences: how much the process grew, and what of that was seen where
      def verdict
        sentences = [*memory_sentence, *place_sentences]
        sentences.empty? ? ["Nothing that was looked at has changed."] : sentences
      end

      # @return [String]
      def header
        process = @diff.later.process
        "memintro #{process[:memintro]}: what changed in #{Text.period(@diff)}, pid #{process[:pid]}, " \
          "ruby #{process[:ruby]}, #{@diff.later.time.strftime('%FT%TZ')}"
      end

      # @return [String, nil]
      def program
        name = @diff.later.process[:program]
        name && Report::Names.printable(name)
      end

      # @param section [Symbol]
      # @param changes [Array<Change>]
      # @return [Array(Array<Change>, String)] those to show, and a sentence about the others or nil
      def shown(section, changes)
        chosen = choose(section, changes)
        rows = @top ? most(chosen) : chosen
        left = chosen.size - rows.size
        [rows, left.positive? ? "#{Units.count(left)} more changed#{sum_of(chosen, rows)}" : nil]
      end

      # @param section [Symbol]
      # @param name [String]
      # @return [String] printable; paths are shortened
      def short(section, name)
        %i[call_sites iseqs iseq_locations].include?(section) ? @names.shortened(name) : Report::Names.printable(name)
      end

      private

      def memory_sentence
        rss = @diff.memory.to_a.find { |change| change.name == "rss_bytes" }
        return unless rss

        verb = rss.growth.positive? ? "grew" : "shrank"
        "RSS #{verb} by #{Units.bytes(rss.growth.abs)}, from #{Units.bytes(rss.before)} to #{Units.bytes(rss.after)}."
      end

      def place_sentences
        most = PLACES.keys.to_h { |section| [section, telling(section).first] }.compact
        most = most.select { |_, change| change.growth >= WORTH_A_WORD }.sort_by { |_, change| -change.growth }
        most.map do |section, change|
          number = change.count_growth ? " in #{change.count_growth_text.delete('+')}" : ""
          # A class may have any name, even one with a %.
          "#{change.growth_text}#{number}: #{PLACES[section].sub('%s') { short(section, change.name) }}."
        end
      end

      # What one list tells, another need not tell again.
      def telling(section)
        changes = @diff.sections[section].to_a
        case section
        when :classes then changes.reject { |change| change.name.start_with?("imemo_") }
        when :internals then @diff.iseqs ? changes.reject { |change| change.name == "imemo_iseq" } : changes
        else changes
        end
      end

      def table(section, changes, style)
        rows, rest = shown(section, changes)
        return [] if rows.empty?

        ["", style.bold("#{Sections::TITLES[section]}:"), *lines(section, rows, style), *rest]
      end

      def choose(section, changes)
        return changes if @top.nil? || !COUNTERS.include?(section)

        changes.select { |change| TELLING.include?(change.name) }
      end

      # What grew most, and where there is room what shrank most.
      def most(changes)
        return changes if changes.size <= @top

        grown = changes.take_while { |change| change.growth.positive? }
        return grown.first(@top) if grown.size >= @top

        grown + changes.drop(grown.size).last(@top - grown.size)
      end

      def sum_of(all, shown)
        return "" unless all.all? { |change| change.unit == :bytes }

        growth = all.sum(&:growth) - shown.sum(&:growth)
        ", by #{Units.uncertain_growth(growth, remaining_error(all, shown))} together"
      end

      # Each call site's sample is drawn independently of the others'.
      def remaining_error(all, shown)
        return unless all.any?(&:estimated?)

        sums = [all, shown].map { |changes| changes.sum { |change| change.variance(:growth) } }
        Math.sqrt([sums[0] - sums[1], 0.0].max)
      end

      def lines(section, changes, style)
        counted = changes.any?(&:count_growth)
        titles = ["growth", *("count" if counted), "now", *("count now" if counted)]
        rows = changes.map { |change| [*cells(change, counted), short(section, change.name)] }
        Report::Table.new(titles, Sections::LAST.fetch(section, "counter"), rows).lines(style)
      end

      def cells(change, counted)
        return [change.growth_text, change.after_text] unless counted

        [change.growth_text, change.count_growth_text.to_s, change.after_text, change.count_after_text.to_s]
      end
    end
  end
end
