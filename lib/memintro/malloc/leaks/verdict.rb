# frozen_string_literal: true

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
      private_constant :LITTLE

      # @param leaks [Leaks]
      # @return [Array<String>] sentences
      def self.of(leaks)
        [*found(leaks), *indirect(leaks), *undecided(leaks), *doubtful(leaks), *advice(leaks)]
      end

      def self.found(leaks)
        first, *rest = leaks.groups.select { |group| group.verdict == :leaked }
        unless first
          return "No block that nothing points to, among #{Units.counted(leaks.scanned_blocks, 'block')} " \
                 "(#{Units.bytes(leaks.scanned_bytes)})."
        end

        from = first.site ? ", from #{Names.printable(first.site)}" : ", from a line that is not known"
        sentence = "#{first.blocks} that nothing points to#{from}."
        return sentence if rest.empty?

        blocks = leaks.leaked_blocks - first.count
        [sentence, "#{Units.counted(blocks, 'further block')} (#{Units.bytes(leaks.leaked_bytes - first.bytes)}) " \
                   "#{Units.noun(blocks, 'has', 'have')} nothing that points to #{Units.noun(blocks, 'it', 'them')}."]
      end
      private_class_method :found

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

      # With glibc that memory is told apart, and searched only where it is in use.
      def self.doubtful(leaks)
        groups = leaks.groups.select { |group| group.verdict == :anchored && group.held_by.to_s.start_with?(UNTRACKED) }
        bytes = groups.sum(&:bytes)
        return [] if leaks.allocator == :glibc || bytes < LITTLE

        more = Units.counted(groups.sum(&:count), "more block")
        ["Up to #{more} (#{Units.bytes(bytes)}) may be lost as well: what points to them, at least to some, is " \
         "#{UNTRACKED}, and #{leaks.allocator} does not tell what of it is free."]
      end
      private_class_method :doubtful

      def self.advice(leaks)
        first = leaks.groups.find { |group| group.verdict == :leaked }
        if first.nil?
          "If memory grows all the same, something holds it: Memintro.report(by: :growth) names the lines, " \
            "Memintro.holders who holds objects, and Memintro.account what the rest of RSS is."
        elsif leaks.copies.zero?
          of_core_file(first, leaks)
        elsif first.site.nil?
          "Track from now on to learn the lines: Memintro.start, work, and Memintro.leaks again; " \
            "or memintro leaks PID --track 60."
        elsif leaks.leaked_bytes < LITTLE
          "That is little. Work for a while and ask again: only what grows with the work is worth a search."
        else
          "Look at that line: what it allocates must be freed by the same library, or be kept where it can be. " \
            "Work on and ask again, to see whether it grows."
        end
      end
      private_class_method :advice

      # That process does not work on.
      def self.of_core_file(first, leaks)
        if first.site.nil?
          "This core file does not say that line. Track the next process to learn it: memintro leaks -- CMD, or " \
            "memintro leaks PID --track 60."
        elsif leaks.leaked_bytes < LITTLE
          "That is little: most programs lose as much at their start."
        else
          "Look at that line: what it allocates must be freed by the same library, or be kept where it can be."
        end
      end
      private_class_method :of_core_file
    end
  end
end
