# frozen_string_literal: true

require_relative "../../support/names"
require_relative "../../support/style"
require_relative "../../support/table"
require_relative "../../support/units"
require_relative "totals_by_kind"
require_relative "sections"
require_relative "concentration"
require_relative "account_sentences"

module Memintro
  class Diff
    # What changed, as a text for people: a verdict, then a table for each list.
    class Text
      # How the verdict names one row of a list, and several rows.
      PLACES = { call_sites: ["at %s", "lines"], iseqs: ["of %s", "files"], classes: ["of class %s", "classes"],
                 internals: ["of kind %s", "kinds"], object_sites: ["at %s", "lines"] }.freeze
      # Lists whose names are in folders.
      FOLDERS = %i[retained object_sites call_sites iseqs].freeze
      # Number of names in the verdict if no single one has most of the growth.
      NAMED = 3
      # Growth below this gets no sentence.
      WORTH_A_WORD = 64 * 1024
      # Lists of counters. Most of these counters do not help to find memory.
      COUNTERS = %i[malloc occupancy gc gc_heaps].freeze
      # The counters that help; the others are shown only with `top: nil`.
      TELLING = %w[count minor_gc_count major_gc_count time heap_live_slots heap_allocated_pages old_objects
                   total_allocated_objects total_freed_objects live_bytes live_blocks allocations frees
                   pages live_slots sparse_pages].freeze
      private_constant :PLACES, :FOLDERS, :NAMED, :WORTH_A_WORD, :COUNTERS, :TELLING

      # @param diff [Diff]
      # @param top [Integer, nil] rows of each table; nil: all
      def initialize(diff, top: DEFAULT_TOP)
        @diff = diff
        @top = top
        @names = Names.new
      end

      # @param diff [Diff]
      # @return [String] the time between the snapshots; also if the one given as the later is the older
      def self.period(diff)
        "#{Units.duration(diff.seconds.abs)}#{', backwards' if diff.seconds.negative?}"
      end

      # @param io [#write, nil] where it will go, for colours
      # @return [String]
      def text(io = nil)
        style = io ? Style.for(io) : Style.new(false)
        tables = @diff.sections.flat_map { |name, changes| table(name, changes, style) }
        [style.bold(header), program, *verdict, *@diff.notes.map { |note| style.warn("note: ") + note },
         *tables].compact.join("\n") << "\n"
      end

      # @return [Array<String>] sentences: how much the process grew, how much of each kind there is more, and where
      def verdict
        sentences = [*memory_sentence, *AccountSentences.new(@diff).list, *kind_sentences]
        sentences.empty? ? ["Nothing has changed."] : sentences
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
        name && Names.printable(name)
      end

      # @param section [Symbol]
      # @param changes [Array<Change>]
      # @return [Array(Array<Change>, String)] those to show, and a sentence about the others or nil
      def shown(section, changes)
        chosen = choose(section, changes)
        rows = @top ? most(chosen) : chosen
        left = chosen.size - rows.size
        return [rows, nil] unless left.positive?

        folder = folder_row(chosen) if FOLDERS.include?(section)
        [[*folder, *rows], "#{Units.count(left)} more changed#{sum_of(chosen, rows)}"]
      end

      # @param section [Symbol]
      # @param name [String]
      # @return [String] printable; paths are shortened
      def short(section, name)
        [*FOLDERS, :iseq_locations].include?(section) ? @names.shortened(name) : Names.printable(name)
      end

      private

      def memory_sentence
        rss = @diff.memory.to_a.find { |change| change.name == "rss_bytes" }
        return unless rss

        verb = rss.growth.positive? ? "grew" : "shrank"
        "RSS #{verb} by #{Units.bytes(rss.growth.abs)}, from #{Units.bytes(rss.before)} to #{Units.bytes(rss.after)}."
      end

      # Totals of each kind, and where they are.
      def kind_sentences
        @diff.kinds.select { |change| change.growth >= WORTH_A_WORD }.map do |change|
          section = TotalsByKind::NAMES.key(change.name)
          where = place(section, Spread.new(telling(section), change.growth))
          "#{change.name.capitalize} #{amount(change)}#{", #{where}" if where}."
        end
      end

      def amount(change)
        text, count = change.growth_text, change.count_growth.to_i
        return text if count.zero?
        return "#{text}, though there are #{change.count_growth_text.delete('-')} fewer" if count.negative?

        "#{text} in #{change.count_growth_text.delete('+')}"
      end

      def place(section, spread)
        at, several = PLACES.fetch(section)
        return if spread.grown.empty?
        return one_place(section, at, spread) if spread.place

        folder, inside = spread.folder if FOLDERS.include?(section)
        return above_all(section, spread.grown) unless folder

        where = "in #{Units.count(inside.size)} #{several} of #{short(section, folder)}"
        spread.all_in?(inside) ? where : "most #{where} (#{growth_of(inside)})"
      end

      def one_place(section, form, spread)
        where = "#{spread.share} #{named(section, form, spread.place)}"
        spread.share == "most" ? "#{where} (#{amount(spread.place)})" : where
      end

      # A class may have any name, even one with a %.
      def named(section, form, change)
        form.sub("%s") { short(section, change.name) }
      end

      # Sums of estimates, whose samples were drawn independently.
      def growth_of(changes)
        error = Math.sqrt(changes.sum { |change| change.variance(:growth) }) if changes.any?(&:estimated?)
        Units.uncertain_growth(changes.sum(&:growth), error)
      end

      def above_all(section, grown)
        first = grown.first(NAMED).map { |change| "#{short(section, change.name)} (#{change.growth_text})" }
        rest = grown.size - first.size
        "above all #{PLACES.fetch(section).first.sub('%s') { first.join(', ') }}" \
          "#{" and #{Units.count(rest)} more #{PLACES.fetch(section).last}" if rest.positive?}"
      end

      # A thing that is in two lists is counted in one of them.
      def telling(section)
        name = TotalsByKind::NAMES.fetch(section)
        @diff.sections[section].to_a.select { |change| TotalsByKind.counts?(name, change, iseqs: @diff.iseqs) }
      end

      def table(section, changes, style)
        rows, rest = shown(section, changes)
        return [] if rows.empty?

        ["", style.bold("#{Sections::TITLES[section]}:"), *lines(section, rows, style), *rest]
      end

      # For a list that was cut: the folder that has most of its rows, as a row above them.
      def folder_row(changes)
        folder, inside = Spread.new(changes, 0).folder
        return unless folder

        Change.sum("#{folder}*", inside)
      end

      def choose(section, changes)
        return changes if @top.nil? || !COUNTERS.include?(section)

        changes.select { |change| TELLING.include?(change.name) }
      end

      # Returns what grew most and, if there is room, what shrank most.
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
        Table.new(titles, Sections::LAST.fetch(section, "counter"), rows).lines(style)
      end

      def cells(change, counted)
        return [change.growth_text, change.after_text] unless counted

        [change.growth_text, change.count_growth_text.to_s, change.after_text, change.count_after_text.to_s]
      end
    end
  end
end
