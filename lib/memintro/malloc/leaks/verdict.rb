# frozen_string_literal: true

require_relative "../../support/advice"
require_relative "../../support/names"
require_relative "../../support/units"

module Memintro
  class Leaks
    # What was found, in words.
    # @api private
    module Verdict
      # Less than this in all is what most programs have from their start.
      LITTLE = 64 << 10
      # What holds blocks where it is not known whether it is in use or free.
      UNTRACKED = "memory of malloc that is not tracked"

      # Other memory comes first if it weighs so many times as much as what leaked.
      HEAVIER = 4
      TRACK = ["Track from now on to learn the lines: Memintro.start, work, and Memintro.leaks again.",
               "Track from now on to learn the lines: memintro leaks PID --track 60."].freeze
      # What says more of memory that something holds.
      HELD = ["Memintro.report(by: :growth) names the lines, Memintro.holders who holds objects, and " \
              "Memintro.account what the rest of RSS is",
              "memintro report PID --by growth names the lines, memintro holders PID --class NAME who holds objects, " \
              "and memintro account PID what the rest of RSS is"].freeze
      private_constant :HEAVIER, :TRACK, :HELD

      # @param leaks [Leaks]
      # @param rubys [Array<String>] lines for whose leaked blocks Ruby itself asked
      # @return [Array<String>] sentences, those about what weighs most first
      def self.of(leaks, rubys = [])
        require_relative "standing"
        leaked = leaks.leaked_bytes + leaks.indirectly_leaked_bytes
        standing = Standing.parts(leaks)
        before, after = standing.partition { |bytes,| leaks.little? || bytes > HEAVIER * leaked }
        [*before.flat_map(&:last), *found(leaks, rubys), *indirect(leaks), *undecided(leaks), *doubtful(leaks),
         *after.flat_map(&:last), *advice(leaks, standing.any?, rubys)]
      end

      def self.found(leaks, rubys)
        first, *rest = leaks.groups.select { |group| group.verdict == :leaked }
        unless first
          return "No block that nothing points to, among #{Units.counted(leaks.scanned_blocks, 'block')} " \
                 "(#{Units.bytes(leaks.scanned_bytes)})."
        end

        return of_little(leaks) if leaks.little?

        from = first.site ? ", from #{Names.printable(first.site)}" : ", from a line that is not known"
        from += ", where Ruby itself asked for them, and no C extension" if rubys.include?(first.site)
        sentence = "#{first.blocks} that nothing points to#{from}."
        return sentence if rest.empty?

        blocks = leaks.leaked_blocks - first.count
        [sentence, "#{Units.counted(blocks, 'further block')} (#{Units.bytes(leaks.leaked_bytes - first.bytes)}) " \
                   "#{Units.noun(blocks, 'has', 'have')} nothing that points to #{Units.noun(blocks, 'it', 'them')}."]
      end
      private_class_method :found

      # All in one sentence: indirectly leaked ones have one of their own.
      def self.of_little(leaks)
        count = leaks.leaked_blocks
        "Little is leaked: #{Units.counted(count, 'block')} (#{Units.bytes(leaks.leaked_bytes)}) that nothing points " \
          "to, as most programs lose at their start."
      end
      private_class_method :of_little

      def self.indirect(leaks)
        return [] unless leaks.indirectly_leaked_blocks.positive?

        count = leaks.indirectly_leaked_blocks
        ["Only leaked blocks point to #{Units.counted(count, 'more block')} " \
         "(#{Units.bytes(leaks.indirectly_leaked_bytes)})."]
      end
      private_class_method :indirect

      def self.undecided(leaks)
        return [] unless leaks.undecided_blocks.positive?

        count = leaks.undecided_blocks
        ["Whether #{Units.counted(count, 'block')} (#{Units.bytes(leaks.undecided_bytes)}) " \
         "#{Units.noun(count, 'is', 'are')} lost is undecided: something pointed to " \
         "#{Units.noun(count, 'it', 'them')} in another copy, or registers of other threads may."]
      end
      private_class_method :undecided

      # With glibc that memory is known, and searched only where it is in use.
      def self.doubtful(leaks)
        groups = leaks.groups.select { |group| group.verdict == :anchored && group.held_by.to_s.start_with?(UNTRACKED) }
        bytes = groups.sum(&:bytes)
        return [] if leaks.allocator == :glibc || bytes < LITTLE

        more = Units.counted(groups.sum(&:count), "more block")
        ["Up to #{more} (#{Units.bytes(bytes)}) may be lost as well: what points to them, at least to some, is " \
         "#{UNTRACKED}, and #{leaks.allocator} does not tell what of it is free."]
      end
      private_class_method :doubtful

      # What to do next; `known`: what weighs most has been said, with its next step.
      def self.advice(leaks, known, rubys)
        first = leaks.groups.find { |group| group.verdict == :leaked }
        if first.nil? || leaks.little?
          return [] if known

          of_little_growth(first, leaks)
        elsif leaks.copies.zero?
          of_core_file(first)
        elsif rubys.include?(first.site)
          "A method of Ruby that this line calls loses them: a newer Ruby may have that mended. See which calls do " \
            "it, and avoid those."
        elsif first.site
          "Look at that line: what it allocates must be freed by the same library, or be kept where it can be. " \
            "Work on and ask again, to see whether it grows."
        elsif leaks.mode == :off
          Advice.pick(*TRACK)
        else
          "They were allocated before tracking began. Track from the start to learn the line: memintro leaks -- CMD."
        end
      end
      private_class_method :advice

      # Where what leaked does not say why memory grows.
      def self.of_little_growth(first, leaks)
        if leaks.copies.zero?
          first && first.site.nil? ? of_core_file(first) : []
        elsif leaks.mode == :off && first
          track = Advice.pick(*TRACK)
          "If memory grows: #{track[0].downcase}#{track[1..]}"
        elsif first
          "Work for a while and ask again: only what grows with the work is worth a search."
        else
          "If memory grows all the same, something holds it: #{Advice.pick(*HELD)}."
        end
      end
      private_class_method :of_little_growth

      # That process does not work on.
      def self.of_core_file(first)
        if first.site.nil?
          "This core file does not say that line. Track the next process to learn it: memintro leaks -- CMD, or " \
            "memintro leaks PID --track 60."
        else
          "Look at that line: what it allocates must be freed by the same library, or be kept where it can be."
        end
      end
      private_class_method :of_core_file
    end
  end
end
