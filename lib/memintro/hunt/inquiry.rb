# frozen_string_literal: true

require_relative "../heap/holding"
require_relative "../heap/survey"
require_relative "../malloc/leaks"
require_relative "../malloc/leaks/reading"
require_relative "../process/account"

module Memintro
  class Hunt
    # Asks frozen copies of the process about growing memory: its kind and its holders. A note says which question has
    # no answer; the finding is written anyway.
    #
    # @api private
    class Inquiry
      # Seconds that a copy may take, and ways of holding that are listed.
      SECONDS = 60
      MOST_WAYS = 3
      # Rows of an account that can be a cause; the others follow from them, or are memintro's.
      CAUSES = %i[malloc_ruby_objects malloc_iseqs malloc_internal malloc_native malloc_free thread_stacks
                  anonymous].freeze
      # Rows whose kind has another name.
      KINDS = { malloc_ruby_objects: :ruby_objects, malloc_iseqs: :iseqs }.freeze
      # What grows, in words.
      WORDS = { malloc_ruby_objects: "memory that Ruby objects own", malloc_iseqs: "compiled Ruby code",
                malloc_internal: "memory of Ruby's own objects", malloc_native: "memory that no Ruby object owns",
                malloc_free: "free memory in malloc's heap", anonymous: "memory mapped past malloc" }.freeze
      # A kind that no line makes.
      WITHOUT_LINE = :malloc_free
      # For an account's row of stacks: their owners, by its details.
      STACKS = { fibers: "Fiber", threads: "Thread" }.freeze
      # Kinds of findings whose cause is a class.
      OF_CLASSES = %i[ruby_objects internal_objects].freeze
      # Beginning of the note for a question without an answer.
      NO_HOLDER = "who holds it could not be asked"
      # Beginning of the names of objects of the VM.
      INTERNAL = "imemo_"
      private_constant :SECONDS, :MOST_WAYS, :CAUSES, :KINDS, :WORDS, :WITHOUT_LINE, :OF_CLASSES, :NO_HOLDER

      # @param budget [Budget]
      def initialize(budget)
        @budget = budget
      end

      # Takes an account to compare a later one with.
      # @return [nil]
      def note_stacks
        @before = nil
        @before = account
        nil
      rescue Error => e
        @no_account = e.message
        nil
      end

      # @param kind [Symbol] of the figure: `:class`, `:iseqs`, `:site` or `:outside`
      # @param name [String] of the figure
      # @param site [CallSite, nil] the line that made it
      # @param tracker [Tracker]
      # @yieldparam name [String] of a class whose objects are the cause
      # @yieldreturn [CallSite, nil] the line that makes them
      # @return [Hash{Symbol => Object}] what, kind, objects, held_by, holders, verdict, notes, no_line; line, if it is
      #   another one
      def about(kind, name, site, tracker, &line)
        @notes = []
        case kind
        when :class
          { what: name, kind: internal?(name) ? :internal_objects : :ruby_objects, **holders(name, site, tracker) }
        when :iseqs then { what: "compiled code of #{name}", kind: :iseqs }
        when :site then { what: "memory from #{name}", kind: :call_site, **holders(nil, site, tracker) }
        else outside(site, tracker, &line)
        end.merge(notes: @notes)
      end

      # Asks again for the holders of a finding without any: on a busy machine a copy may take too long.
      # @param finding [Finding]
      # @param tracker [Tracker]
      # @return [Hash{Symbol => Object}] changed attributes of the finding
      def again(finding, tracker)
        return {} if finding.held_by || !OF_CLASSES.include?(finding.kind)

        @notes = []
        found = holders(finding.what, nil, tracker)
        found.any? ? { **found, notes: finding.notes.grep_v(/\A#{NO_HOLDER}/o) } : {}
      end

      private

      def internal?(name) = name&.start_with?(INTERNAL)

      def account
        @budget.charge_copy { Memintro.account(seconds: SECONDS) }
      end

      # The row of an account that has grown most since {#begin}.
      def outside(site, tracker, &line)
        row = grown_row
        return { what: "memory outside of Ruby's heap", kind: :outside } unless row
        return stacks(tracker, &line) if row == :thread_stacks

        facts = { what: WORDS.fetch(row), kind: KINDS.fetch(row, row), no_line: row == WITHOUT_LINE }
        row == :malloc_native && site ? facts.merge(verdict(site)) : facts
      end

      def grown_row
        unless @before
          @notes << "no account could be taken: #{@no_account}"
          return
        end
        @after = account
        rows = @after.diff(@before).rows.select { |row| CAUSES.include?(row.name) && row.bytes.positive? }
        rows.max_by(&:bytes)&.name
      rescue Error => e
        @notes << "no account could be taken: #{e.message}"
        nil
      end

      # The stacks of fibers or of threads, whichever have grown more, with the holders of these.
      def stacks(tracker)
        before, after = [@before, @after].map { |one| one[:thread_stacks].details }
        grown = ->(of) { after.dig(of, :bytes).to_i - before.dig(of, :bytes).to_i }
        of = STACKS.keys.max_by(&grown)
        name = STACKS.fetch(of)
        line = yield(name)
        { what: "memory of #{of}", kind: of == :fibers ? :fiber_stacks : :thread_stacks,
          objects: [after.dig(of, :count), count(name)].compact.min, line: line, no_line: line.nil?,
          **holders(name, line, tracker) }
      end

      # Ruby keeps some stacks for fibers to come.
      def count(name)
        survey = HeapSurvey.take(%i[classes], GC.stat)
        found = nil
        survey.rows(:classes) { |slice| found ||= slice.assoc(name) }
        found && found[1]
      rescue RactorError, BusyError, UnknownRubyError
        nil
      ensure
        survey&.clear
      end

      # By line, if objects are followed, else of all objects of the class.
      def holders(name, site, tracker)
        name = nil unless name && TrackedClasses.name?(name)
        by_line = tracker.objects? ? site&.name : nil
        return {} unless name || by_line

        # Only objects of suspected classes are followed, and objects of the VM have no class that can be selected.
        found = (by_line && held(internal?(name) ? nil : name, by_line, quietly: name)) || (name && held(name, nil))
        return {} unless found

        ways = found.groups.first(MOST_WAYS)
        { held_by: ways.first&.to_s, holders: ways.map { |way| "#{Units.count(way.objects)}: #{way}" } }
      end

      def held(name, line, quietly: false)
        @budget.charge_copy { Memintro.holders(name, site: line, top: MOST_WAYS, seconds: SECONDS) }
      rescue Error, ArgumentError => e
        @notes << "#{NO_HOLDER}: #{e.message.lines.first.to_s.chomp}" unless quietly
        nil
      end

      # Whether anything points to the blocks of a line.
      def verdict(site)
        most = largest_group(site)
        return {} unless most

        return owned(most) if most.verdict != :leaked && most.owner

        { verdict: most.verdict.to_s, held_by: most.verdict == :leaked ? nil : most.held_by }
      rescue Error => e
        @notes << "whether anything points to it could not be asked: #{e.message.lines.first.to_s.chomp}"
        {}
      end

      # Ruby objects own the memory, and they have holders.
      def owned(group)
        ways = held(group.owner, nil, quietly: true)&.groups.to_a.first(MOST_WAYS)
        { what: "memory of C code that #{group.owner} objects own", kind: :malloc_owned, verdict: group.verdict.to_s,
          held_by: ways.empty? ? group.held_by : "#{group.owner} ← #{ways.first}",
          holders: ways.map { |way| "#{Units.count(way.objects)} #{group.owner}: #{way}" } }
      end

      def largest_group(site)
        is_its = ->(id) { Native.site_names([id]).any? { |_, name| Names.utf8(name) == site.name } }
        leaks = @budget.charge_copy do
          Memintro.untracked do
            LeakReading.take(first_words: false, confirm: false, seconds: SECONDS, &is_its)
          end
        end
        leaks.groups.select { |group| group.site == site.name }.max_by(&:bytes)
      end
    end
  end
end
