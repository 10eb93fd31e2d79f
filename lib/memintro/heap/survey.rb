# frozen_string_literal: true

require_relative "figures"
require_relative "../support/paths"

module Memintro
  # One walk over Ruby's heap for all that a snapshot asks of it, in steps of some milliseconds: between two of them
  # other threads have their turn. What it finds stays in the extension's memory; Ruby objects are made only for who
  # asks for rows.
  #
  # What is memintro's own is left out: instances of its classes, these classes, and the code of its files.
  # @api private
  module HeapSurvey
    # What can be asked for, in the order of {Snapshot::Parts::ALL}.
    PARTS = %i[types classes iseqs internals occupancy].freeze
    # Each step finishes a sweep that is under way, and where Ruby offers no way around it, a marking. In a heap of so
    # many objects that takes long, so the program is given time to come to its end by itself, ...
    MANY_OBJECTS = 300_000
    # ... so many seconds in all, ...
    PATIENCE_SECONDS = 1.0
    # ... looked at so often.
    NAP_SECONDS = 0.005
    # States of the collector in which a step leaves it alone.
    HARMLESS = (Native::HeapSurvey.leaves_marking? ? %i[none marking] : %i[none]).freeze
    # The files: what ends in a slash is a folder.
    OWN = [*["#{Paths::LIB}/memintro.rb", Memintro.method(:untracked).source_location&.first].compact.flat_map do |file|
      [file, "#{file.delete_suffix('.rb')}/"]
    end, "#{Paths::LIB}/puma/plugin/memintro.rb"].uniq.each(&:freeze).freeze
    private_constant :MANY_OBJECTS, :PATIENCE_SECONDS, :HARMLESS, :NAP_SECONDS

    # @param parts [Array<Symbol>] of {PARTS}
    # @param counters [Hash{Symbol => Integer}] what `GC.stat` said: it says so again when the last page has been seen
    # @return [Native::HeapSurvey] which has seen all
    # @raise [RactorError, BusyError, UnknownRubyError]
    def self.take(parts, counters)
      survey = Native::HeapSurvey.new(parts, OWN)
      deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + PATIENCE_SECONDS
      loop do
        wait_for_collector(deadline)
        HeapFigures.only_ractor
        break if survey.step(counters)

        Thread.pass
      end
      found = survey
    ensure
      survey&.clear unless found
    end

    # An idle program never finishes what it has begun.
    def self.wait_for_collector(deadline)
      return if GC.stat(:heap_live_slots) < MANY_OBJECTS

      until HARMLESS.include?(GC.latest_gc_info(:state)) || Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
        sleep(NAP_SECONDS)
      end
    end
    private_class_method :wait_for_collector
  end
end
