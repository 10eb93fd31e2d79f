# frozen_string_literal: true

require_relative "../runtime/main_ractor"
require_relative "../support/paths"

module Memintro
  # Walks Ruby's heap once for all requested parts of a snapshot, in steps of some milliseconds. Other threads run
  # between two steps. The results stay in the memory of the extension; Ruby objects are made only for requested rows.
  #
  # Objects of memintro are left out: instances of its classes, these classes, and the code of its files.
  # @api private
  module HeapSurvey
    # Parts of a survey, in the order of {Snapshot::Parts::ALL}.
    PARTS = %i[types classes iseqs internals occupancy].freeze
    # Each step finishes a sweep that is under way and, if Ruby offers no way around it, a marking. In a heap of this
    # many objects that takes long, so the program first gets time to finish it by itself.
    MANY_OBJECTS = 300_000
    # Most seconds that it waits for that.
    PATIENCE_SECONDS = 1.0
    # Seconds between two checks.
    NAP_SECONDS = 0.005
    # States of the collector that a step does not change.
    HARMLESS = (Native::HeapSurvey.leaves_marking? ? %i[none marking] : %i[none]).freeze
    # The files; a name that ends in a slash is a folder.
    OWN = [*["#{Paths::LIB}/memintro.rb", Memintro.method(:untracked).source_location&.first].compact.flat_map do |file|
      [file, "#{file.delete_suffix('.rb')}/"]
    end, "#{Paths::LIB}/puma/plugin/memintro.rb"].uniq.each(&:freeze).freeze
    private_constant :MANY_OBJECTS, :PATIENCE_SECONDS, :HARMLESS, :NAP_SECONDS

    # @param parts [Array<Symbol>] of {PARTS}; with `:old` types and classes have old objects only,
    #   with `:outlived` types, classes, iseqs and internals those that have outlived a collection. Unless
    #   {.tells_outlived?}, garbage is collected, and the whole walk is one step
    # @param counters [Hash{Symbol => Integer}] gets `GC.stat` when the last page has been visited
    # @return [Native::HeapSurvey] after the whole walk
    # @raise [RactorError, BusyError, UnknownRubyError]
    def self.take(parts, counters)
      survey = Native::HeapSurvey.new(parts, OWN)
      deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + PATIENCE_SECONDS
      loop do
        wait_for_collector(deadline)
        MainRactor.alone
        break survey.collect(counters) if parts.include?(:outlived) && !tells_outlived?
        break if survey.step(counters)

        Thread.pass
      end
      found = survey
    ensure
      survey&.clear unless found
    end

    # @return [Boolean] whether a walk knows which objects have outlived a collection, at any time
    def self.tells_outlived?
      Native::HeapSurvey.tells_outlived?
    end

    # Does not wait for long: an idle program never finishes what it has begun.
    def self.wait_for_collector(deadline)
      return if GC.stat(:heap_live_slots) < MANY_OBJECTS

      until HARMLESS.include?(GC.latest_gc_info(:state)) || Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
        sleep(NAP_SECONDS)
      end
    end
    private_class_method :wait_for_collector
  end
end
