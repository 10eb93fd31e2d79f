# frozen_string_literal: true

require_relative "../../support/advice"
require_relative "../../support/names"
require_relative "../../support/units"
require_relative "copy_on_write"

module Memintro
  class Account
    # What the rows mean, in words. docs/account.md explains each threshold.
    # @api private
    module Verdict
      # Less than this is never worth a sentence.
      LEAST_BYTES = 8 << 20
      # Rows, and the percentage of RSS from which each deserves a sentence.
      THRESHOLDS = {
        malloc_free: 20, ruby_heap_free: 20, malloc_native: 30, anonymous: 30, mapped_files: 40, malloc_iseqs: 20,
        malloc_internal: 20, malloc_ruby_objects: 30, ruby_heap_live: 30, thread_stacks: 15, memintro: 15,
        unattributed: 5
      }.freeze
      # More arenas than this are many.
      MANY_ARENAS = 4

      # @param account [Account]
      # @return [Array<String>] sentences, that of the largest row first
      def self.of(account)
        rows = account.rows.select do |row|
          row.bytes >= LEAST_BYTES && row.bytes * 100 >= THRESHOLDS.fetch(row.name, 101) * account.rss
        end
        found = rows.sort_by { |row| -row.bytes }.map { |row| sentence(row, account.rss) }
        # Where the parent did not say what it had at the fork, all of it may have been made since.
        shared = [*CopyOnWrite.sentence(account)]
        found = CopyOnWrite.known?(account) ? shared + found : found + shared
        found.empty? ? [nothing(account)] : found
      end

      # @param diff [Account::Difference]
      # @return [Array<String>]
      def self.of_growth(diff)
        largest = diff.rows.max_by(&:bytes)
        growth = diff.rss
        return ["RSS has not grown (#{Units.signed_bytes(growth)})."] if growth <= 0 || largest.bytes <= 0

        ["RSS has grown by #{Units.bytes(growth)}; #{grown(largest.name, largest.bytes)}."]
      end

      # @param name [Symbol] of the row that has grown most
      # @param bytes [Integer]
      # @param step [String] what says more
      # @return [String]
      def self.grown(name, bytes, step = Advice.pick(*NEXT.fetch(name)))
        "#{name} has grown most, by #{Units.bytes(bytes)}: #{MEANINGS.fetch(name)}. Next: #{step}"
      end

      # What each row is, for a sentence.
      MEANINGS = {
        ruby_heap_live: "slots of live Ruby objects", ruby_heap_free: "free slots on pages of Ruby's heap",
        malloc_ruby_objects: "memory that Ruby objects own", malloc_iseqs: "compiled Ruby code",
        malloc_internal: "internal objects of Ruby's VM",
        malloc_native: "malloc memory that no Ruby object counts as its own",
        malloc_free: "memory that malloc has free but keeps", thread_stacks: "stacks of threads and fibers",
        mapped_files: "pages of mapped files and libraries", anonymous: "memory mapped past malloc",
        memintro: "memintro's own memory", unattributed: "memory that could not be attributed"
      }.freeze

      LIBRARY = "the statistics of the library that maps it"
      # What says more of a row that grows: methods, and commands.
      NEXT = {
        ruby_heap_live: ["Memintro.histogram", "memintro histogram PID"],
        ruby_heap_free: ["Memintro.trim(compact: true)", "memintro trim PID --compact"],
        malloc_ruby_objects: ["Memintro.histogram", "memintro histogram PID"],
        malloc_iseqs: ["Memintro.top_iseqs", "memintro iseqs PID"],
        malloc_internal: ["Memintro.internals", "memintro diff PID"],
        malloc_native: ["Memintro.leaks", "memintro leaks PID"],
        malloc_free: ["Memintro.account counts its arenas, Memintro.trim gives back what it can",
                      "memintro account PID counts its arenas, memintro trim PID gives back what it can"],
        thread_stacks: ["Memintro.holders(\"Fiber\"), or \"Thread\"",
                        "memintro holders PID --class Fiber, or --class Thread"],
        mapped_files: ["the details of this row name the files", "memintro account PID --json names the files"],
        anonymous: [LIBRARY, LIBRARY], memintro: ["Memintro.doctor", "memintro doctor PID"],
        unattributed: ["the notes of Memintro.account", "the notes of memintro account PID"]
      }.freeze
      private_constant :LIBRARY

      def self.sentence(row, rss)
        return "#{Units.share(row.bytes, rss)} of #{Units.bytes(rss)} is #{stacks(row)}" if row.name == :thread_stacks

        "#{Units.share(row.bytes, rss)} of #{Units.bytes(rss)} is #{MEANINGS.fetch(row.name)}: #{advice(row)}"
      end
      private_class_method :sentence

      def self.advice(row)
        case row.name
        when :malloc_free then fragmentation(row)
        when :ruby_heap_free
          "few objects survive on many pages. " \
          "#{Advice.pick('Memintro.occupancy names their classes; Memintro.trim(compact: true)',
                         '`memintro trim PID --compact`')} may help."
        when :malloc_native then native(row)
        when :anonymous then "a native library or a JIT compiler has mapped it. Look at its own statistics."
        when :mapped_files then "#{largest_file(row)}The kernel takes unchanged pages back when it needs memory."
        when :malloc_iseqs
          "the program's own code and that of its gems; where it grows, methods or blocks are made at run time. " \
          "#{Advice.pick('Memintro.top_iseqs(by: :location)', '`memintro iseqs PID --by location`')} names the lines."
        when :malloc_internal
          "#{Advice.pick('Memintro.internals', '`memintro snapshot PID --parts internals`')} lists their kinds."
        when :malloc_ruby_objects then "#{largest_type(row)}#{classes('Memintro.histogram')}"
        when :ruby_heap_live then classes("Memintro.histogram(by: :count)")
        when :memintro then "its tables. Sampled mode takes less."
        else "another library's memory manager, or damage; see the notes."
        end
      end
      private_class_method :advice

      def self.classes(method)
        "#{Advice.pick(method, '`memintro histogram PID`')} names the classes."
      end
      private_class_method :classes

      def self.fragmentation(row)
        arenas = row.details[:arenas].to_i
        trim = Advice.pick("Memintro.trim", "`memintro trim PID`")
        return "fragmentation. #{trim} gives back what it can." unless row.details[:allocator] == "glibc"

        many = arenas > MANY_ARENAS ? "#{arenas} arenas; MALLOC_ARENA_MAX=2 or jemalloc helps" : "Jemalloc may help"
        "fragmentation. #{many}; #{trim} gives back about #{Units.bytes(row.details[:trimmable_bytes].to_i)}."
      end
      private_class_method :fragmentation

      NAME_LINES = [" Memintro.start, work, and Memintro.top name the lines that ask for it; Memintro.leaks judges " \
                    "each block.",
                    " `memintro start PID`, work, and `memintro top PID` name the lines that ask for it; `memintro " \
                    "leaks PID` judges each block."].freeze
      private_constant :NAME_LINES

      def self.held_by(name)
        "#{Advice.pick(Advice.holders(name), "`#{Advice.holders(name)}`")} says what holds them"
      end
      private_class_method :held_by

      # Stacks of threads and those of fibers have different causes.
      def self.stacks(row)
        threads, fibers = row.details.values_at(:threads, :fibers).map(&:to_h)
        return of_fibers(fibers, threads) if fibers[:bytes].to_i > threads[:bytes].to_i

        "stacks of #{Units.counted(threads[:count].to_i, 'thread')}: use fewer threads, or end them. " \
          "#{held_by('Thread')}."
      end
      private_class_method :stacks

      def self.of_fibers(fibers, threads)
        live, of_enumerators = fibers.values_at(:live, :of_enumerators).map(&:to_i)
        return kept(fibers) if fibers[:live] && live * 2 < fibers[:count]

        rest = threads[:count].to_i.positive? ? " (#{Units.bytes(threads[:bytes])} more is of threads)" : ""
        many = Units.counted(fibers[:live] ? live : fibers[:count], "fiber")
        "stacks of #{many}, not of threads#{rest}: #{cause(live, of_enumerators)} " \
          "#{held_by(of_enumerators * 2 > live ? 'Enumerator' : 'Fiber')}."
      end
      private_class_method :of_fibers

      def self.cause(live, of_enumerators)
        return "each keeps its stack until it has ended or is collected." if of_enumerators * 2 <= live

        each = of_enumerators >= live ? "each" : "each of #{Units.count(of_enumerators)}"
        "#{each} runs an Enumerator whose `next` was called, and keeps its stack until the enumerator is finished or " \
          "collected. Use `first` or `lazy`, or drop it."
      end
      private_class_method :cause

      def self.kept(fibers)
        "#{Units.count(fibers[:count])} stacks that Ruby keeps for fibers, of which there are " \
          "#{Units.count(fibers[:live])} now: so many were there at once. Ruby gives them back when a whole group is " \
          "unused."
      end
      private_class_method :kept

      def self.native(row)
        reached = row.details[:reached].to_h
        return of_objects(row, reached) if reached[:bytes].to_i * 2 > row.bytes

        free = row.details[:free_told_apart] == false
        trim = Advice.pick("Memintro.trim", "`memintro trim PID`")
        causes = "#{'free memory that the allocator does not tell apart, ' if free}a leak in C code, or a library's " \
                 "cache.#{" #{trim}, and another account, tell the first from the others." if free}"
        "#{causes}#{some_of_objects(reached)}#{line_of(row) || Advice.pick(*NAME_LINES)}"
      end
      private_class_method :native

      # Where objects lead to most of it, they own it, and their extension tells Ruby no size.
      def self.of_objects(row, reached)
        largest = reached[:classes].first
        name = Names.printable(largest[:name])
        "#{Units.counted(reached[:objects], 'object')} lead to #{Units.bytes(reached[:bytes])} of it, and their C " \
          "extension tells Ruby no size, so that the collector does not hurry: most from " \
          "#{Units.count(largest[:objects])} #{name} (#{Units.bytes(largest[:bytes])}). " \
          "#{held_by(largest[:name])}, and #{Advice.pick('Memintro.leaks', '`memintro leaks PID`')} which blocks are " \
          "leaked.#{line_of(row)}"
      end
      private_class_method :of_objects

      def self.some_of_objects(reached)
        largest = Array(reached[:classes]).first
        return "" if reached[:bytes].to_i < LEAST_BYTES / 8 || largest.nil?

        " #{Units.counted(reached[:objects], 'object')} whose C extension tells Ruby no size lead to " \
          "#{Units.bytes(reached[:bytes])} of it, most from #{Names.printable(largest[:name])}."
      end
      private_class_method :some_of_objects

      def self.line_of(row)
        largest = Array(row.details[:call_sites]).first or return
        of = " of all rows" if row.details[:call_sites_of] == "all rows"
        " The largest tracked call site#{of} is #{Names.printable(largest[:name])} " \
          "(#{Units.bytes(largest[:live_bytes])} live)."
      end
      private_class_method :line_of

      def self.largest_type(row)
        largest = Array(row.details[:types]).first
        largest ? "most by #{largest[:name]} (#{Units.bytes(largest[:bytes])}). " : ""
      end
      private_class_method :largest_type

      def self.largest_file(row)
        largest = Array(row.details[:files]).first
        largest ? "most of #{Names.printable(largest[:name])} (#{Units.bytes(largest[:bytes])}). " : ""
      end
      private_class_method :largest_file

      def self.nothing(account)
        row = account.rows.max_by(&:bytes)
        "Nothing stands out in #{Units.bytes(account.rss)}: the largest part, " \
          "#{Units.share(row.bytes, account.rss)}, is #{MEANINGS.fetch(row.name)}."
      end
      private_class_method :nothing
    end
  end
end
