# frozen_string_literal: true

require_relative "../support/brake"
require_relative "../support/units"

module Memintro
  class Measurement
    # Says why figures of a measurement are missing, and states limits of the others.
    # @api private
    module Notes
      # By the problem that Memintro::Native::Measuring returns.
      PROBLEMS = {
        untracked: "the block was measured inside of Memintro.untracked, so malloc was not followed",
        lost: "the figures of malloc could not be read: another thread did not finish recording, or the process was " \
              "forked while it recorded",
        began_anew: "tracking was started, stopped or cleared during the block, so there are no figures of malloc",
        mode_changed: "the mode of tracking was changed during the block, so there are no figures of malloc"
      }.freeze
      # Ruby threads that share native threads may move between them.
      SHARED_THREADS = RUBY_DESCRIPTION.include?("+MN")
      private_constant :PROBLEMS, :SHARED_THREADS

      # @return [Array<String>] why the figures of the calling thread cannot be separated from those of others
      def self.of_thread
        return [] unless SHARED_THREADS

        ["this Ruby runs several threads on a native one (RUBY_MN_THREADS), so it was not followed"]
      end

      # @param name [Symbol] problem from Memintro::Native::Measuring
      # @return [String]
      def self.problem(name) = PROBLEMS.fetch(name)

      # @param figures [Hash{Symbol => Object}]
      # @return [Array<String>]
      def self.about(figures)
        notes = missing(figures)
        unseen, dropped = figures.fetch(:objects_unseen, 0), figures.fetch(:dropped, 0)
        notes << "#{Units.counted(unseen, 'object')} of other Ractors came meanwhile, so objects were not counted" if
          unseen.positive?
        notes << "#{Units.counted(dropped, 'block')} could not be followed, because memory or max_tracker_bytes ran " \
                 "out: the figures of malloc are too low by these" if dropped.positive?
        if Fiber.scheduler
          notes << "a Fiber scheduler is set: what other fibers of this thread did meanwhile is in the figures"
        end
        notes
      end

      def self.missing(figures)
        problem = PROBLEMS[figures[:problem]]
        return [problem] if problem
        return [] if figures[:tracking]
        return ["#{Brake.cause}, so neither malloc nor objects were followed"] if Brake.on?

        reasons = of_thread
        reasons.empty? ? ["malloc was not followed"] : reasons
      end
      private_class_method :missing
    end
  end
end
