# frozen_string_literal: true

require_relative "../../statistics"

module Bench
  module Introspection
    # Several ways to answer a question, timed in turn, so that a slow moment of the machine falls on all of them.
    module Rounds
      COUNT = 7

      # @param subjects [Hash{String => Proc}]
      # @return [Hash{String => Float}] median seconds of each
      def self.measure(subjects, count: COUNT)
        times = Hash.new { |hash, name| hash[name] = [] }
        order = Random.new(1)
        count.times do
          subjects.keys.shuffle(random: order).each do |name|
            begun = now
            subjects[name].call
            times[name] << (now - begun)
          end
        end
        subjects.keys.to_h { |name| [name, Statistics.median(times[name])] }
      end

      # Milliseconds, and how many times those of `base` that is.
      def self.print(medians, base, out = $stdout)
        medians.each do |name, time|
          out.puts(format("%-36s %10.2f ms %9.3fx", name, time * 1e3, time / medians.fetch(base)))
        end
      end

      def self.now = ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
    end
  end
end
