# frozen_string_literal: true

module Memintro
  module MemCheck
    # Repeats each test, and finds the native stacks whose live blocks grow with each run: held blocks, which a search
    # for leaks cannot find.
    # @api private
    class Repetitions
      # Rounds of a stage, and how often the test runs in each round. After the last stage it has run 246 times: a cache
      # with a lower bound is full before, and grows no more.
      STAGES = [[5, 1], [5, 8], [5, 32]].freeze
      private_constant :STAGES

      class << self
        # @return [Repetitions, nil] that of this process, if the check repeats tests
        attr_accessor :wanted
      end

      # Blocks and bytes that each run of a test leaves, by the number of the call site.
      # @return [Hash{Integer => Array(String, Float, Float)}] with the name of the test that leaves most
      attr_reader :growing

      def initialize
        @growing = {}
        @running = false
      end

      # @param name [String] of a test that has run once
      # @yield runs it once more, without a trace in the results
      # @return [nil]
      def repeat(name, &run)
        return if @running

        begin
          @running = true
          stages(&run).each { |site, (blocks, bytes)| add(site, name, blocks, bytes) }
        ensure
          @running = false
        end
        nil
      end

      private

      def stages(&run)
        suspects = nil
        STAGES.each do |rounds, runs|
          suspects = stage(rounds, runs, suspects, &run)
          break if suspects.empty?
        end
        suspects
      end

      # @return [Hash{Integer => Array(Float, Float)}] blocks and bytes for each run, of those sites that grew in each
      #   round
      def stage(rounds, runs, suspects)
        runs.times { yield }
        before = first = live
        sites = suspects&.keys
        rounds.times do
          runs.times { yield }
          now = live
          sites = (sites || now.keys).select { |site| blocks(now, site) - blocks(before, site) >= runs }
          before = now
        end
        count = (rounds * runs).to_f
        sites.to_h { |site| [site, [0, 1].map { |at| (before[site][at] - (first[site] || [0, 0])[at]) / count }] }
      end

      def blocks(live, site)
        live.fetch(site, [0, 0]).first
      end

      def live
        Memintro.untracked do
          GC.start
          Native.native_stack_sites
        end
      end

      def add(site, name, blocks, bytes)
        known = @growing[site]
        @growing[site] = [name, blocks, bytes] if known.nil? || known[2] < bytes
      end
    end
  end
end
