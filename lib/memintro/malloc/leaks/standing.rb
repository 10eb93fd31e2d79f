# frozen_string_literal: true

require_relative "../../support/advice"
require_relative "../../support/names"
require_relative "../../support/units"

module Memintro
  class Leaks
    # What is not leaked but weighs much, in words: what came while memintro tracked and is still there, and garbage
    # that had waited for the collector.
    # @api private
    module Standing
      # Less than this is not worth a sentence.
      GREAT = 1 << 20
      # What hardly ever is the cause: what Ruby itself has, and what has no name.
      UNTOLD = ["an internal object of Ruby", "an object of Ruby's VM", "memory that was mapped past malloc",
                "code that was made at run time"].freeze
      SILENT = "their extension does not tell Ruby their size"
      # Sentences about garbage of which Ruby does not know the size.
      GARBAGE = "Their extension does not tell Ruby their size, so Ruby collects too seldom. Free such an object " \
                "where it is no longer needed (with a method such as destroy! or close), run GC.start, or have the " \
                "extension tell Ruby (rb_gc_adjust_memory_usage)."
      private_constant :GREAT, :UNTOLD, :SILENT, :GARBAGE

      # @param leaks [Leaks]
      # @return [Array<Array(Integer, Array<String>)>] bytes, and sentences about them, the largest first
      def self.parts(leaks)
        garbage = leaks.owners.select { |owner| owner.garbage_bytes >= GREAT && owner.silent_garbage? }
        owner = garbage.max_by(&:garbage_bytes)
        parts = [(of_garbage(owner) if owner), still_there(leaks, owner)].compact
        parts = [from_before(leaks)].compact if parts.empty? && leaks.little?
        parts.sort_by { |bytes,| -bytes }
      end

      # Objects of that class which are there now are rather the garbage that came since then.
      def self.of_garbage(owner)
        asked = asked_for(owner.garbage_bytes, owner.garbage_sites, owner.library)
        first = "#{asked} were garbage until this search had it collected: " \
                "#{objects(owner.garbage_objects, owner.class_name)}, which nothing held, owned them."
        return [owner.garbage_bytes, [first, GARBAGE]] if owner.bytes < GREAT

        now = "#{Units.counted(owner.objects, 'object')} of that class #{Units.noun(owner.objects, 'owns', 'own')} " \
              "#{Units.bytes(owner.bytes)} now. Who holds them, and how many are garbage since then: " \
              "#{Advice.holders(owner.class_name, Process.pid)}."
        [owner.garbage_bytes + owner.bytes, [first, GARBAGE, now]]
      end
      private_class_method :of_garbage

      # What came while memintro tracked. `but`: an owner of which all has been said.
      def self.still_there(leaks, but)
        owners = leaks.owners.reject { |one| one.equal?(but) }.select { |one| weight(one, leaks) >= GREAT }
        owner = owners.max_by { |one| weight(one, leaks) }
        group = without_owner(leaks)
        return of_owner(owner, leaks) if owner && (group.nil? || group.bytes <= weight(owner, leaks))

        asked = group && asked_for(group.bytes, [[group.site, group.bytes]], nil)
        group && [group.bytes, ["#{asked} came while it tracked, and are still there; held by " \
                                "#{Names.printable(group.holders)}."]]
      end
      private_class_method :still_there

      # Where nothing came while memintro tracked: what weighs most although Ruby does not know of it.
      def self.from_before(leaks)
        owner = leaks.owners.select { |one| one.silent? && one.bytes >= GREAT }.max_by(&:bytes) or return
        first = "#{Units.bytes(owner.bytes)} are owned by #{objects(owner.objects, owner.class_name)}, and " \
                "#{owner.objects == 1 ? SILENT.gsub('their', 'its') : SILENT}; less than #{Units.bytes(GREAT)} of it " \
                "came while it tracked."
        [owner.bytes, [first, *holders(owner, leaks)]]
      end
      private_class_method :from_before

      # Without tracking, only what Ruby does not know itself is worth a word.
      def self.weight(owner, leaks)
        return owner.tracked_bytes if leaks.mode != :off

        owner.silent? ? owner.bytes : 0
      end
      private_class_method :weight

      def self.without_owner(leaks)
        rows = leaks.groups.select do |group|
          group.verdict == :anchored && group.site && group.owner.nil? && group.bytes >= GREAT &&
            !UNTOLD.include?(group.held_by)
        end
        rows.max_by(&:bytes)
      end
      private_class_method :without_owner

      def self.of_owner(owner, leaks)
        bytes = weight(owner, leaks)
        count = leaks.mode == :off ? owner.objects : [owner.tracked_objects, 1].max
        silent = owner.silent? ? ", and #{count == 1 ? SILENT.gsub('their', 'its') : SILENT}" : ""
        who = objects(count, owner.class_name)
        first = if leaks.mode == :off
                  "#{Units.bytes(bytes)} are owned by #{who}#{silent}."
                else
                  "#{asked_for(bytes, owner.sites, owner.library)} came while it tracked, and are still there: " \
                    "#{who} #{Units.noun(count, 'owns', 'own')} them#{silent}."
                end
        [bytes, [first, *holders(owner, leaks)]]
      end
      private_class_method :of_owner

      # The next step. A core file is of a process that has ended.
      def self.holders(owner, leaks)
        return [] if leaks.copies.zero?

        unsure = leaks.garbage_collected ? "" : ", and how many of them are garbage that waits for the collector"
        "Who holds these objects#{unsure}: #{Advice.holders(owner.class_name, Process.pid)}."
      end
      private_class_method :holders

      def self.objects(count, name)
        "#{Units.counted(count, 'object')} of class #{Names.printable(name)}"
      end
      private_class_method :objects

      # The lines that have most of it.
      def self.asked_for(bytes, sites, library)
        lines = sites.first(2).select { |_, of_it| of_it * 25 >= bytes }.map { |site,| Names.printable(site) }
        return Units.bytes(bytes) if lines.empty?

        "#{Units.bytes(bytes)} that #{library ? "#{library} asked for" : 'were asked for'} at #{lines.join(' and ')}"
      end
      private_class_method :asked_for
    end
  end
end
