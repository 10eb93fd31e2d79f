# frozen_string_literal: true

require_relative "../../support/names"

module Memintro
  class Diff
    # Notes about what limits the comparison of two snapshots.
    class Notes
      # @param earlier [Snapshot]
      # @param later [Snapshot]
      def initialize(earlier, later)
        @earlier = earlier
        @later = later
      end

      # @return [Array<String>]
      def list
        [*processes, *versions, *order, *tracking, *sampled, *parts]
      end

      private

      def processes
        return if same_process?
        return "Process id #{@later.pid} was given to another process in between." if same?(:pid) && same?(:program)

        "Two processes are compared: #{process(@earlier)} and #{process(@later)}."
      end

      def versions
        %i[ruby memintro platform].filter_map do |name|
          next if same?(name)

          "The earlier is of #{name} #{@earlier.process[name]}, the later of #{name} #{@later.process[name]}."
        end
      end

      def order
        # Snapshots of one process are compared by the monotonic clock.
        clock = same_process? ? :monotonic_s : :time
        return unless @later.public_send(clock) < @earlier.public_send(clock)

        "The snapshot given as the later one is older: growth is computed backwards."
      end

      def tracking
        return "Malloc was tracked in only one of the two snapshots, so call sites cannot be compared." if one_sided?
        return if same?(:epoch) || !same?(:pid) || !@later.tracked?

        "Tracking was started or cleared in between: its figures begin there."
      end

      def sampled
        return unless [@earlier, @later].any? { |snapshot| snapshot.totals&.estimated? }

        "Malloc was sampled: figures with ~ are estimates, and after ± stands the standard error. A growth of less " \
          "than two of these means nothing; where blocks stayed, that of the growth is an upper bound."
      end

      def one_sided?
        @earlier.tracked? ^ @later.tracked?
      end

      def parts
        only = { "earlier" => @earlier.parts - @later.parts, "later" => @later.parts - @earlier.parts }
        only.filter_map do |which, list|
          list -= %i[sites]
          "Only the #{which} has #{list.join(', ')}." unless list.empty?
        end
      end

      def same_process?
        same?(:pid) && same?(:program) && same?(:started)
      end

      def same?(name)
        @earlier.process[name] == @later.process[name]
      end

      def process(snapshot)
        "#{snapshot.pid} (#{Names.printable(snapshot.process[:program].to_s)})"
      end
    end
  end
end
