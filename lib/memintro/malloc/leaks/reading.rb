# frozen_string_literal: true

require_relative "../../runtime/loader"
require_relative "../../support/advice"

module Memintro
  # Looks at frozen copies of this process until what they have found can be told.
  # @api private
  class LeakReading
    # A search is repeated where another thread was in malloc at its instant, or leaves undecided what would be
    # leaked: so often in any case, and more often until so many seconds are over. Before the second time it waits so
    # many seconds, and then twice as long each time.
    LEAST_LOOKS = 2
    PATIENCE = 1.0
    PAUSE = 0.02
    # Verdicts by their numbers.
    BY_NUMBER = %i[leaked indirectly_leaked undecided].freeze
    private_constant :LEAST_LOOKS, :PATIENCE, :PAUSE, :BY_NUMBER

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

      [allocator, mode, Native.leaks(allocator == :glibc, false, false, seconds)]
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
          new(allocator, mode, Native.leaks(chunks, first_words, confirm, seconds), notes.dup)
        end
      end
      found = look.call(glibc)
      # Without chunks, those blocks that are followed can be judged by themselves.
      if glibc && !found.trustworthy? && mode == :full && !chunks_only
        found = look.call(false, *found.difference)
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

    # @return [String, nil] in what the list of chunks and malloc's own sums differ
    attr_reader :difference

    # @param look [Array] what {Native.leaks} answers
    def initialize(allocator, mode, look, notes)
      @allocator = allocator
      @mode = mode
      @look = look
      @notes = notes
      @pause = look[2]
      @copies = look[3]
      @trustworthy, @difference, @undecided = Native.leaks_state(look)
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
    def trustworthy? = @trustworthy

    # @param matters [#call, nil] whether a call site matters, by its number; nil: all do
    # @return [Boolean] whether another look may say more: it was torn, or leaves blocks undecided
    def again?(matters = nil)
      return !@difference.nil? unless @trustworthy

      @undecided.any? { |id| matters.nil? || matters.call(id) }
    end

    # @param before [LeakReading, nil]
    # @param collected [Boolean] whether garbage was collected
    # @return [Leaks]
    # @raise [LeaksError]
    def leaks(before: nil, collected: false)
      # Loaded late, as the earlier look is read late: what is loaded before the search may lie on old addresses.
      Loader.need(:Leaks)
      known = [@allocator, @mode, @notes, collected, @copies, @pause]
      Leaks.of_hash(Native.leaks_found(@look, before&.look, known, Advice.names_commands?))
    end

    # @return [Array<Array(Symbol, Integer, Integer, Integer)>] of blocks that leaked, also indirectly, and of those
    #   that are undecided: verdict, number of the call site, blocks and bytes
    # @raise [LeaksError]
    def lost_sites
      rows = Native.leaks_lost_sites(@look, Advice.names_commands?)
      rows.map { |number, *figures| [BY_NUMBER[number], *figures] }
    end

    protected

    attr_reader :pause, :copies, :look
  end
end
