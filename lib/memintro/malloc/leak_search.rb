# frozen_string_literal: true

require_relative "../runtime/loader"
require_relative "../runtime/main_ractor"
require_relative "../support/arguments"

module Memintro
  # The method that searches for leaked blocks. {Memintro} is extended with it.
  module LeakSearch
    # Finds blocks of malloc that nothing points to any more: not a variable, an object, a stack, nor a block that
    # something points to. A frozen copy of the process searches; this one stands still only while the kernel copies its
    # page tables ({Leaks#pause_ms}; 30 to 100 ms for each GB and copy), and waits for the copy without Ruby's lock.
    #
    # With glibc every block is judged, tracked or not; the lines are those of blocks that were tracked. With another
    # allocator only blocks that are tracked in full mode are judged. docs/leaks.md says what counts as a pointer, and
    # what a verdict does not mean.
    #
    # The first sentences are about what weighs most: what leaked; what came while memintro tracked and is still
    # there, by the Ruby objects that own it; and garbage whose size Ruby does not know. For the last, another copy is
    # made before garbage is collected where memintro tracks.
    #
    # @param gc [Boolean] collect garbage first. Otherwise a block that only garbage points to counts as held
    # @param confirm [Boolean] where another thread may have run, search a second copy 20 ms later, and call leaked only
    #   what is so in both: what a thread held in a register at one instant is not in the copy
    # @param first_words [Boolean] say what the first words of leaked blocks look like. Never what they hold
    # @param seconds [Integer] after which a copy is given up
    # @return [Leaks]
    # @raise [LeaksError] if the process cannot be copied, if malloc's memory cannot be read, or if nothing is tracked
    #   and the allocator is not glibc
    # @raise [RactorError] in a Ractor other than the main one
    # @example
    #   Memintro.start
    #   work
    #   puts Memintro.leaks
    def leaks(gc: true, confirm: true, first_words: false, seconds: 60)
      MainRactor.only
      Loader.need(:LeakReading)
      flags = { gc: gc, confirm: confirm, first_words: first_words }
      flags.each { |name, value| Arguments.flag(name, value) }
      Arguments.count(:seconds, seconds, least: 1, most: 600)
      untracked do
        before = LeakReading.before(seconds: seconds) if gc
        GC.start if gc
        LeakReading.take(first_words: first_words, confirm: confirm, seconds: seconds, before: before, collected: gc)
      end
    end
  end
end
