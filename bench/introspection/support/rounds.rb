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
      #
      # @param aims [Hash{String => Hash}] what a subject should keep to: `most:` or `least:` times `base`, `most_ms:`
      def self.print(medians, base, out = $stdout, aims: {})
        medians.each do |name, time|
          ratio = time / medians.fetch(base)
          line = format("%-36s %10.2f ms %9.3fx", name, time * 1e3, ratio)
          out.puts([line, *aims[name]&.map { |aim, bound| verdict(*judged(aim, bound, ratio, time * 1e3)) }].join)
        end
      end

      # @return [Array(String, Boolean)] the aim in words, and whether it is met
      def self.judged(aim, bound, ratio, milliseconds)
        case aim
        when :most then ["at most #{bound}x", ratio <= bound]
        when :least then ["at least #{bound}x", ratio >= bound]
        when :most_ms then ["at most #{bound} ms", milliseconds <= bound]
        end
      end
      private_class_method :judged

      # @return [String] for the end of a line
      def self.verdict(aim, met)
        "  (aim: #{aim}: #{met ? 'met' : 'missed'})"
      end

      def self.now = ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
    end
  end
end
