# frozen_string_literal: true

require_relative "../../support/advice"
require_relative "../../support/copy_end"
require_relative "../../support/names"
require_relative "../../support/paths"
require_relative "../../support/units"
require_relative "lines"

module Memintro
  # Makes groups of what frozen copies of this process have found.
  # @api private
  class LeakReading
    # A search is repeated where another thread was in malloc at its instant, or leaves undecided what would be
    # leaked: so often in any case, and more often until so many seconds are over. Before the second time it waits so
    # many seconds, and then twice as long each time.
    LEAST_LOOKS = 2
    PATIENCE = 1.0
    PAUSE = 0.02
    # What malloc's own sums may differ by: the host allocates a little between them and its copy.
    SLACK = 256 << 10
    # Call sites of blocks that something holds.
    MOST_ANCHORED = 50
    # Verdicts by their numbers.
    BY_NUMBER = %i[leaked indirectly_leaked undecided].freeze
    WORDS = { 1 => "zero", 2 => "a number", 3 => "text", 4 => "a block's address", 5 => "an object",
              6 => "an address", 7 => "other bytes" }.freeze
    private_constant :LEAST_LOOKS, :PATIENCE, :PAUSE, :SLACK, :MOST_ANCHORED, :BY_NUMBER, :WORDS

    # @param first_words [Boolean]
    # @param confirm [Boolean] two copies, where there are other threads
    # @param seconds [Integer] after which a copy is given up
    # @param before [Array, nil] of {.before}: garbage was collected since
    # @param collected [Boolean] garbage was collected
    # @yield [Integer] the number of a call site: whether its blocks must be decided. Without a block, all must
    # @return [Leaks]
    # @raise [LeaksError]
    def self.take(first_words:, confirm:, seconds:, before: nil, collected: false, &matters)
      found = search(first_words: first_words, confirm: confirm, seconds: seconds, &matters)
      earlier = before && new(*before, [])
      found.after(earlier).leaks(before: earlier, collected: collected)
    end

    # A look before garbage is collected, so that what goes with it has a name. It is read after the search: what is
    # allocated before that may lie on old addresses, which then hold blocks.
    # @param seconds [Integer] after which the copy is given up
    # @return [Array, nil] nil: nothing is tracked, or it did not succeed
    def self.before(seconds:)
      allocator, = Native.allocator_figures
      mode = Native.mode
      return unless mode == :full || (mode == :sampled && allocator == :glibc)

      [allocator, mode, *Native.leaks(allocator == :glibc, false, false, seconds)]
    rescue LeaksError
      nil
    end

    # @param chunks_only [Boolean] with glibc, do without the search of followed blocks alone, which takes all else
    #   for memory in use, and more for held
    # @param patience [Numeric] seconds for which a search that a running thread leaves undecided is repeated
    # @yield as with {.take}
    # @return [LeakReading]
    # @raise [LeaksError]
    def self.search(first_words:, confirm:, seconds:, chunks_only: false, patience: PATIENCE,
                    &matters)
      allocator, = Native.allocator_figures
      mode = Native.mode
      glibc = allocator == :glibc
      refuse(allocator, mode) unless glibc || mode == :full
      look = lambda do |chunks, *notes|
        repeat(matters, patience) do
          new(allocator, mode, *Native.leaks(chunks, first_words, confirm, seconds), notes.dup)
        end
      end
      found = look.call(glibc)
      # Without chunks, those blocks that are followed can be judged by themselves.
      if glibc && !found.trustworthy? && mode == :full && !chunks_only
        found = look.call(false, found.difference)
      end
      found
    end

    # @yieldreturn [LeakReading] one look
    # @return [LeakReading] the last one
    def self.repeat(matters, patience)
      begun = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      pause = PAUSE
      found = nil
      (1..).each do |looks|
        found = yield.after(found)
        over = looks >= LEAST_LOOKS && Process.clock_gettime(Process::CLOCK_MONOTONIC) - begun + pause > patience
        return found if over || !found.again?(matters)

        sleep(pause)
        pause *= 2
      end
    end
    private_class_method :repeat

    def self.refuse(allocator, mode)
      advice = if mode == :sampled
                 "A sample is not enough to tell who points to what: go over to full mode " \
                   "(#{Advice.pick('Memintro.start', 'memintro start PID')})"
               else
                 "Start tracking (#{Advice.pick('Memintro.start', 'memintro leaks PID --track 60')})"
               end
      raise LeaksError, "the inside of #{allocator} is not known, so only blocks that are tracked can be judged. " \
                        "#{advice}, work, and ask again"
    end
    private_class_method :refuse

    # What {Native.leaks} answers.
    def initialize(allocator, mode, text, whole, pause, copies, in_use, signal, notes)
      @allocator = allocator
      @mode = mode
      @lines = LeakLines.new(text.force_encoding(Encoding::BINARY))
      @whole = whole
      @pause = pause
      @copies = copies
      @in_use = in_use
      @signal = signal
      @notes = notes
    end

    # Counts what an earlier look has cost as well.
    # @param former [LeakReading, nil]
    # @return [LeakReading] itself
    def after(former)
      if former
        @pause += former.pause
        @copies += former.copies
      end
      self
    end

    # @return [Boolean] whether the copy came to its end, and what it says agrees with malloc
    def trustworthy?
      @whole && sum("stage").positive? && difference.nil?
    end

    # @param matters [#call, nil] whether a call site matters, by its number; nil: all do
    # @return [Boolean] whether another look may say more: it was torn, or threads that ran, or words that were there
    #   in one copy only, leave blocks undecided. What a thread that waits has in registers stays there
    def again?(matters = nil)
      return !difference.nil? unless trustworthy?
      return false if sum("registers", 2).zero? && sum("doubted").zero?

      @lines.all("group").any? do |number, id,|
        BY_NUMBER[number] == :undecided && (matters.nil? || matters.call(id))
      end
    end

    # @return [String, nil] in what the list of chunks and malloc's own sums differ
    def difference
      return if !@in_use && sum("chunks").zero?

      broken = @lines.all("broken")
      unless broken.empty?
        return "glibc's chunks cannot be read to their end in #{Units.counted(broken.size, 'place')}: a block was " \
               "written beyond its end, or another thread was in malloc"
      end
      return "glibc's arenas were not found" if sum("chunks").zero?

      unequal_sums if @in_use
    end

    # @param before [LeakReading, nil]
    # @param collected [Boolean] whether garbage was collected
    # @return [Leaks]
    # @raise [LeaksError]
    def leaks(before: nil, collected: false)
      refuse_unless_done
      # Loaded late, as the earlier look is read late: what is loaded before the search may lie on old addresses. What
      # tells of them is loaded with them, for signal handlers.
      Loader.need(:Leaks)
      %w[holder ownership standing].each { |name| Loader.file("malloc/leaks/#{name}") }
      note_troubles
      Leaks.new(groups: [*groups, *anchored, *free], notes: @notes, garbage_collected: collected,
                owners: Leaks::Ownership.new(@lines, (before.lines if before&.trustworthy?)).owners,
                allocator: @allocator, mode: @mode, basis: chunks? ? :chunks : :tracked, copies: @copies,
                pause_ms: @pause.round(2), searched_bytes: sum("searched"),
                search_ms: (sum("searched", 1) / 1e6).round(2),
                scanned_blocks: sum("scanned"), scanned_bytes: sum("scanned", 1),
                free_bytes: (free_bytes if chunks?), rubys: rubys, **sums)
    end

    # @return [Array<Array(Symbol, Integer, Integer, Integer)>] of blocks that leaked, also indirectly, and of those
    #   that are undecided: verdict, number of the call site, blocks and bytes
    # @raise [LeaksError]
    def lost_sites
      refuse_unless_done
      rows = @lines.all("group").map { |number, id, _, count, bytes| [BY_NUMBER[number], id, count, bytes] }
      rows.reject { |_, id,| id == LeakLines::NO_SITE }
    end

    protected

    attr_reader :pause, :copies, :lines

    private

    def sum(key, place = 0)
      @lines.sum(key, place)
    end

    def chunks?
      sum("chunks").positive?
    end

    # Bytes in use in arenas, and mapped blocks with theirs.
    def unequal_sums
      before, after = @in_use
      # What was freed while the copy was made, malloc has back only after that.
      walked = sum("arena", 5) - sum("fast", 2) - sum("given_up")
      moved = (after[0] - before[0]).abs
      unless (walked - after[0]).abs <= moved + SLACK
        return "glibc's chunks in use add up to #{Units.bytes(walked)}, and mallinfo2 says #{Units.bytes(after[0])}"
      end
      return if before != after || [sum("mmapped", 0), sum("mmapped", 1)] == after.drop(1)

      "#{Units.counted(sum('mmapped'), 'mapped block')} of glibc (#{Units.bytes(sum('mmapped', 1))}) were found, " \
        "and mallinfo2 says #{after[1]} (#{Units.bytes(after[2])})"
    end

    def refuse_unless_done
      if sum("no_pagemap").positive?
        raise LeaksError, "the kernel does not show which pages are there (/proc/self/pagemap), so memory cannot " \
                          "be searched without taking all of it. A process that was started as another user, or " \
                          "has called prctl(PR_SET_DUMPABLE, 0), may not read that file: start it as its user " \
                          "(setpriv, systemd's User=)"
      end
      if !trustworthy? && difference
        raise LeaksError, "#{difference}: no verdict is given. Ask again; if it stays so, track " \
                          "(#{Advice.pick('Memintro.start', 'memintro start PID')}) and ask again, which judges " \
                          "the blocks that are tracked"
      end
      return if trustworthy?

      raise LeaksError, "the copy of this process that was to find leaks #{CopyEnd.said(@signal)} before it had. " \
                        "Give it more time or memory (seconds:, limits), or ask again"
    end

    def note_troubles
      kept = sum("kept_back") + sum("unreadable")
      if kept.positive?
        @notes << "#{Units.bytes(kept)} of memory are kept from copies of the process, or unreadable: a block that " \
                  "only they point to looks leaked"
      end
      note_registers
      if @mode == :sampled
        @notes << "blocks are tracked in sampled mode: most lines are not known, and all blocks were judged"
      end
      unless chunks?
        @notes << "only blocks that are tracked were judged; all its other memory is taken for memory in " \
                  "use, also what it has free, so a leaked block may be taken for held"
      end
      @notes << "#{sum('lost')} lines of figures had no room" if sum("lost").positive?
    end

    # Says how many registers of threads outside of Ruby are unknown.
    def note_registers
      threads = sum("registers")
      return unless threads.positive?

      subject = threads > 1_000_000 ? "other threads" : Units.counted(threads, "thread")
      @notes << "#{subject} ran, or waited outside of Ruby's own code, and may hold blocks in registers, which " \
                "cannot be read: lost blocks of one line and size are called leaked only if there are more of " \
                "them than such registers (#{Units.count(sum('registers', 1))})"
    end

    def sums
      verdicts = @lines.all("verdict").to_h { |number, _groups, blocks, bytes| [number, [blocks, bytes]] }
      leaked, indirect, undecided = (0..2).map { |number| verdicts.fetch(number, [0, 0]) }
      { leaked_blocks: leaked[0], leaked_bytes: leaked[1], indirectly_leaked_blocks: indirect[0],
        indirectly_leaked_bytes: indirect[1], undecided_blocks: undecided[0], undecided_bytes: undecided[1] }
    end

    def groups
      words = @lines.all("words")
      @lines.all("group").each_with_index.map do |row, index|
        number, id, size, count, bytes, youngest, oldest, holder_id, holder_size = row
        verdict = BY_NUMBER.fetch(number, :undecided)
        ages = id == LeakLines::NO_SITE ? {} : { youngest: youngest, oldest: oldest }
        Leaks::Group.new(verdict: verdict, site: name_of(id), size: size, count: count, bytes: bytes, **ages,
                         held_by: (holder(holder_id, holder_size) if verdict == :indirectly_leaked),
                         first_words: words[index] && shown(words[index]),
                         example: words[index] && hexadecimal(words[index].first))
      end
    end

    # In two halves: the whole number would be an Integer that points to the block.
    def hexadecimal(decimal)
      high = low = 0
      decimal.each_char do |digit|
        low = (low * 10) + digit.to_i
        high = (high * 10) + (low >> 32)
        low &= 0xffff_ffff
      end
      format("%#x%08x", high, low)
    end

    def holder(id, size)
      "a leaked block of #{Units.count(size)} bytes#{" from #{name_of(id)}" if name_of(id)}"
    end

    def shown(numbers)
      numbers.drop(1).each_slice(2).reject { |kind, _| kind.zero? }.map do |kind, value|
        (kind == 6 && Native.address_name(value)) || WORDS.fetch(kind, "other bytes")
      end
    end

    # By call site, those with most bytes, and what holds most of each.
    def anchored
      @lines.all("anchored").first(MOST_ANCHORED).map do |id, count, bytes, *holders|
        first, second = holders.each_slice(4).map { |figures| Leaks::Holder.new(*figures) }
        Leaks::Group.new(verdict: :anchored, site: name_of(id), count: count, bytes: bytes, **first.fields,
                         **(second.bytes.positive? ? second.also : {}))
      end
    end

    # The lines of leaked blocks for which Ruby itself asked.
    def rubys
      leaked = @lines.all("group").select { |number,| BY_NUMBER[number] == :leaked }
      ids = leaked.map { |_, id| id }.uniq - [LeakLines::NO_SITE]
      ids.empty? ? [] : Native.rubys_sites(ids).map { |id| name_of(id) }
    end

    def free_bytes
      sum("arena", 3) + sum("arena", 4) + sum("tcache", 2) + sum("fast", 1)
    end

    def free
      return [] unless chunks?

      [Leaks::Group.new(verdict: :free_but_kept, count: sum("arena", 7) + sum("tcache", 1) + sum("fast"),
                        bytes: free_bytes)]
    end

    def name_of(id)
      return if id == LeakLines::NO_SITE

      @names ||= begin
        ids = @lines.all("group").flat_map { |row| [row[1], row[7]] } + @lines.all("anchored").map(&:first)
        Native.site_names(ids.uniq - [LeakLines::NO_SITE]).to_h
      end
      name = @names[id]
      name && Names.utf8(name)
    end
  end
end
