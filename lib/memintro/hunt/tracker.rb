# frozen_string_literal: true

require_relative "../support/tracked_classes"
require_relative "../malloc/tracking"
require_relative "../runtime/ractor_guard"
require_relative "../malloc/site_figures"

module Memintro
  class Hunt
    # Tracking for the time of an investigation. If the program already tracks, the investigation uses that tracking,
    # which stays on. If the program starts or stops tracking meanwhile, the tracking belongs to the program from then
    # on.
    #
    # @api private
    class Tracker
      # Bytes of malloc that a sample stands for: a leak of 1 MB in two minutes gets some sixty.
      SAMPLE_BYTES = 16_384
      # Lines of a stack.
      DEPTH = 12
      # Most memory that tracking takes, and lines that are read.
      MOST_BYTES = 128 << 20
      MOST_LINES = 200
      # Classes that can be followed at a time.
      MOST_CLASSES = 20
      # Lines whose classes are read.
      CANDIDATES = 10
      private_constant :SAMPLE_BYTES, :DEPTH, :MOST_BYTES, :MOST_LINES, :MOST_CLASSES, :CANDIDATES

      # @return [String] what is tracked, in words
      attr_reader :words

      # @param classes [Array<String>] names of those whose objects are to be followed
      # @return [nil]
      # @raise [Error]
      def start_tracking(classes)
        classes = classes.select { |name| TrackedClasses.name?(name) }.first(MOST_CLASSES)
        # Does not follow objects on Rubies that crash if a Ractor starts meanwhile.
        classes = [] if RactorGuard.needed? && Ractor.count > 1
        @words = "the program's own tracking"
        return if Memintro.tracking?

        @begun = true
        Memintro.lend_tracking(self) do
          Memintro.start(mode: :sampled, sample_bytes: SAMPLE_BYTES, objects: classes.empty? ? false : classes,
                         stack_depth: DEPTH, stop_after: nil, max_tracker_bytes: MOST_BYTES, max_sites: nil)
        end
        @words = ["malloc sampled", *("objects of #{classes.join(', ')}" unless classes.empty?)].join(", ")
        nil
      end

      # @return [Boolean] whether there are lines to read
      def on? = Memintro.tracking?

      # @return [Boolean] whether objects are followed, so that they have lines
      def objects? = on? && Native.tracks_objects ? true : false

      # Does nothing if the tracking is not, or is no longer, this one's. If figures are busy, the next call ends it.
      # @return [nil]
      def stop_tracking
        Memintro.take_back_tracking(self) if @begun
        @begun = false
        nil
      rescue BusyError
        nil
      end

      # @return [Hash{String => CallSite}] the lines that hold most, by name
      def lines
        return {} unless on?

        Memintro.top(MOST_LINES).to_h { |site| [site.name, site] }
      end

      # The bytes that a line holds, without malloc's known garbage.
      # @param site [CallSite]
      # @return [Integer]
      def self.held(site)
        (site.old_bytes || site.live_bytes) + site.object_bytes
      end

      # The line whose memory grew most between two readings.
      #
      # @param before [Hash{String => CallSite}]
      # @param after [Hash{String => CallSite}]
      # @param classes [Array<String>] one of whose objects it must have made; none: any line
      # @return [Array(CallSite, Integer, Array<String>), nil] with its growth, and what it made
      def fastest(before, after, classes)
        grown = after.filter_map do |name, site|
          more = Tracker.held(site) - (before[name] ? Tracker.held(before[name]) : 0)
          [site, more] if more.positive? && site.kind != :pseudo
        end
        candidates = grown.max_by(CANDIDATES) { |_, more| more }
        candidates.each do |site, more|
          made = objects? ? site.classes.keys : []
          return [site, more, made] if classes.empty? || made.empty? || (made & classes).any?
        end
        nil
      end

      # @param site [CallSite]
      # @return [Array<String>] of the stack that holds most of what this line has
      def stack(site)
        return [] unless on? && Native.stack_depth > 1

        Memintro.stacks(1, site: site).flat_map { |found| found.stack.map(&:to_s) }
      rescue Error
        []
      end
    end
  end
end
