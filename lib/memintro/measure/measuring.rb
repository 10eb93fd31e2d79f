# frozen_string_literal: true

require_relative "../support/arguments"
require_relative "../support/brake"
require_relative "../runtime/loader"
require_relative "../runtime/main_ractor"

module Memintro
  # Methods of {Memintro} that measure the cost of a piece of code; docs/measure.md explains the figures.
  module Measuring
    # Rounds of {#compare}. One more is not counted.
    ROUNDS = 10
    # Most rounds.
    MOST_ROUNDS = 100_000
    # Call sites that a measurement shows, by each of two figures.
    TOP = 10
    private_constant :ROUNDS, :MOST_ROUNDS, :TOP

    # Measures a block: time, garbage collections, and what was allocated, freed and retained (born in the block and
    # live at its end) by this thread and by the process, in bytes of malloc and in objects. These figures are exact.
    # Calls may be nested, and run in several threads at the same time, with tracking on or off: if necessary, this
    # starts full tracking, or switches to it, for the block, and restores the former state afterwards, unless the
    # program itself calls {Memintro.start} or {Memintro.stop} meanwhile. A start begins with empty figures.
    #
    # Measuring slows the block down, by half or more if it makes many objects. {#compare} takes times in separate
    # rounds. A full collection after the block takes as long as `GC.start`, and is in none of the figures.
    #
    # @param gc [Boolean] collect garbage before counting retained memory; false: garbage counts as retained
    # @param objects [Boolean] follow objects; false: malloc, time and collections only, which slows the block down less
    # @param top [Integer] how many call sites of this thread to show
    # @yieldparam measurement [Measurement] the same that is returned. It has its figures when the block has ended,
    #   also by an exception, which passes through.
    # @return [Measurement] with the block's value, which counts as retained; under `MEMINTRO_DISABLE` one with times
    #   and collections only
    # @raise [ArgumentError, TypeError] without a block, or on a wrong argument
    # @raise [RactorError] in a Ractor other than the main one, or while there are others
    # @raise [Error] if more than 64 measurements of a thread are nested, or if {Memintro.start} raises it; then the
    #   block has not run
    # @example
    #   Memintro.measure { Array.new(1_000) { "x" * 1_000 } }.allocated_bytes   # => 1_009_000, on Ruby 3.1
    def measure(gc: true, objects: true, top: TOP, &block)
      raise ArgumentError, "measure needs a block: Memintro.measure { … }" unless block

      MainRactor.only
      Native.hide_own
      begin
        return unmeasured(block) if Brake.holds?

        Arguments.flag(:gc, gc)
        Arguments.flag(:objects, objects)
        Arguments.count(:top, top, most: MOST_ROUNDS)
        ready_to_measure
        Measurement.take(block, gc: gc, objects: objects, top: top)
      ensure
        Native.show_own
      end
    end

    # Runs two or more pieces of code in turn, and compares their costs. Times and collections are taken in rounds in
    # which nothing else is measured; then the other figures are taken as {#measure} does, in as many rounds. So each
    # piece runs 2 × (`rounds` + 1) times: the first round of each kind is not counted. The order changes from round
    # to round.
    #
    # @param rounds [Integer] how many count, of each kind
    # @param gc [Boolean] collect garbage before each timed run and after each measured one, outside of the figures
    # @param pieces [Hash{Symbol => #call}] what to compare, by name; the others are compared with the first
    # @return [Comparison] `puts` shows it as a table
    # @raise [ArgumentError, TypeError] on fewer than two pieces, or a wrong argument
    # @raise [RactorError, Error] as {#measure}; an exception of a piece passes through
    # @example
    #   puts Memintro.compare(join: -> { names.join(",") }, inject: -> { names.inject { |a, b| "#{a},#{b}" } })
    def compare(rounds: ROUNDS, gc: true, **pieces)
      MainRactor.only
      Arguments.count(:rounds, rounds, least: 1, most: MOST_ROUNDS)
      Arguments.flag(:gc, gc)
      if pieces.size < 2
        raise ArgumentError, "compare needs two pieces of code or more: compare(a: -> { … }, b: -> { … })"
      end

      pieces.each do |name, piece|
        next if piece.respond_to?(:call)

        raise TypeError, "#{name} is #{Arguments.shown(piece)}; it must be a Proc or another object with a method call"
      end
      ready_to_measure
      Loader.need(:Comparison)
      Measurement.hidden { Comparison.compare(pieces, rounds: rounds, gc: gc && !Brake.holds?) }
    end

    private

    def unmeasured(block)
      load_measurement
      Measurement.take(block, gc: false, objects: false, top: 0, malloc: false)
    end

    # Its file measures while it is loaded, and needs the settings for that.
    def load_measurement
      setting(:max_sites)
      Loader.need(:Measurement)
    end

    def ready_to_measure
      ractors = Ractor.count
      if ractors > 1
        raise RactorError, "#{ractors} Ractors are alive, and memintro can measure only while there is one, because " \
                           "Ruby tells it nothing of their objects; wait until the others have ended"
      end
      reclaim_tracking
      Loader.need(:RactorGuard)
      RactorGuard.install
      load_measurement
      # If the measurement starts tracking, ids of call sites get a new meaning.
      @epoch += 1 unless tracking? || Brake.on?
    end
  end
end
