# frozen_string_literal: true

require_relative "../heap/survey"
require_relative "../runtime/main_ractor"
require_relative "tracker"

module Memintro
  class Hunt
    # Reads the figures of a hunt: memory outside of Ruby's heap, old objects by class, instruction sequences by file,
    # and, if the program itself tracks, call sites.
    #
    # Objects count after they have outlived some collections. Garbage that waits for a collection is usually younger,
    # so figures do not rise and fall with each collection. If there was no collection since the last reading, this
    # collects young objects: otherwise none would get old.
    #
    # @api private
    class Watch
      # One reading: its time, objects allocated a minute since the one before, the RSS, the figures by key, and
      # whether some could not be read.
      Reading = Struct.new(:minute, :load, :rss, :figures, :partial, keyword_init: true)

      # Rows of each list. A growing figure gets into the list.
      MOST_CLASSES = 300
      MOST_ISEQS = 100
      MOST_SITES = 100
      PARTS = %i[classes iseqs old].freeze
      # Counted by file.
      ISEQ = "imemo_iseq"
      PAGE = GC::INTERNAL_CONSTANTS.fetch(:HEAP_PAGE_SIZE, 65_536)
      STATUS = "/proc/self/status"
      private_constant :MOST_CLASSES, :MOST_ISEQS, :MOST_SITES, :PARTS, :ISEQ, :PAGE, :STATUS

      def initialize
        @stat = {}
        @own_bytes = 0
      end

      # @param minute [Numeric]
      # @return [Reading]
      def read(minute)
        collect_young if @collections == GC.count
        figures = {}
        partial = !add_heap(figures)
        add_sites(figures)
        GC.stat(@stat)
        add_outside(figures)
        @collections = GC.count
        Reading.new(minute: minute, load: load(minute), rss: Native.rss, figures: figures, partial: partial)
      end

      # Lets objects grow older, unless they have since the last call or reading. Objects are old after three
      # collections: with three of them between two readings, each object counts soon, and few start to count
      # together.
      # @return [nil]
      def age
        collect_young if @collections == GC.count
        @collections = GC.count
        nil
      end

      # Frees all garbage, so that later growth is held.
      # @return [nil]
      def collect
        GC.start
        @collections = nil
      end

      # Leaves out memory that memintro itself takes in the block, such as its code, or gives back. The stated size of
      # its tables may exceed their resident part, so the difference may be negative.
      # @return [Object] the block's value
      def own
        before = own_memory
        value = yield
        @own_bytes += own_memory.to_i - before if before
        value
      end

      private

      # Untouched address space is no memory: the stack of a fiber has hundreds of KiB, and uses a few.
      #
      # @return [Integer, nil] private memory of the process, resident or swapped out, without the tables of tracking;
      #   nil without /proc, or without a free descriptor
      def own_memory
        found = File.binread(STATUS).scan(/^(?:RssAnon|VmSwap):\s*(\d+) kB/)
        found.sum { |kib,| kib.to_i * 1024 } - tables unless found.empty?
      rescue SystemCallError
        nil
      end

      def tables = Memintro.tracking? ? Memintro.totals.tracker_bytes : 0

      def collect_young
        GC.start(full_mark: false, immediate_sweep: true)
      end

      # @return [Float, nil] objects a minute; nil the first time
      def load(minute)
        made = @stat[:total_allocated_objects]
        before = @made
        @made = [minute, made]
        before && minute > before[0] ? (made - before[1]) / (minute - before[0]) : nil
      end

      # Other Ractors may change the heap while it is read. Then only the other figures are watched.
      def add_heap(figures)
        GC.stat(@stat)
        survey = HeapSurvey.take(PARTS, @stat)
        first_rows(survey, :classes, MOST_CLASSES) { |name, bytes| figures[[:class, name]] = bytes unless name == ISEQ }
        first_rows(survey, :paths, MOST_ISEQS) { |name, bytes| figures[[:iseqs, name]] = bytes }
        true
      rescue RactorError, BusyError, UnknownRubyError
        false
      ensure
        survey&.clear
      end

      # Rows are made in slices; there may be a hundred thousand classes.
      def first_rows(survey, list, most)
        survey.rows(list) do |slice|
          slice.first(most).each { |name, _, bytes| yield JsonText.normal(name).freeze, bytes }
          break
        end
      end

      def add_sites(figures)
        return unless Memintro.tracking?

        Memintro.top(MOST_SITES).each do |site|
          figures[[:site, site.name]] = Tracker.held(site)
        end
      end

      # Memory outside of the pages of Ruby's heap: of malloc, of stacks, and of other mappings.
      def add_outside(figures)
        bytes = own_memory or return
        figures[[:outside, "malloc"]] = bytes - @own_bytes - (@stat[:heap_allocated_pages] * PAGE)
      end
    end
  end
end
