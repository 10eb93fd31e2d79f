# frozen_string_literal: true

# RSS of the own process, asked of memintro, of the gem get_process_mem (Debian's ruby-get-process-mem) and of `ps`; and
# what the sampler takes. Run by itself: ruby -Ilib bench/introspection/process.rb

require "memintro"
require_relative "support/rounds"

module Bench
  module Introspection
    # Prints microseconds an answer, and how many times memintro's that is.
    module Process
      ROUNDS = 5
      SAMPLES = 500

      def self.call(out = $stdout)
        ours = fastest(20_000) { Memintro.rss }
        rows = [["Memintro.rss", ours], ["get_process_mem", gem_time], ["ps -o rss=", ps_time],
                ["Memintro.pss", fastest(200) { Memintro.pss }]]
        rows.each do |name, time|
          figures = time ? format("%12.1f µs %10.1fx", time * 1e6, time / ours) : "not installed"
          aim = Rounds.verdict("at most 5 µs", ours <= 5e-6) if name == "Memintro.rss"
          out.puts("#{name.ljust(24)} #{figures}#{aim}")
        end
        { "off" => -> {}, "on" => -> { Memintro.start } }.each do |tracking, prepare|
          prepare.call
          share = sampler_share * 100
          line = format("Memintro::RSSSampler, tracking %-4s %.4f%% of a core at 2 s", tracking, share)
          out.puts("#{line}#{Rounds.verdict('at most 0.1%', share <= 0.1)}")
        end
      end

      # The least of some rounds: what disturbs only adds.
      def self.fastest(count)
        Array.new(ROUNDS) do
          begun = now
          count.times { yield }
          (now - begun) / count
        end.min
      end

      def self.gem_time
        require "get_process_mem"
        fastest(1_000) { GetProcessMem.new.bytes }
      rescue LoadError
        nil
      end

      def self.ps_time
        fastest(5) { `ps -o rss= -p #{::Process.pid}` }
      rescue Errno::ENOENT
        nil
      end

      def self.sampler_share
        begun = cpu
        sampler = Memintro::RSSSampler.new(interval: 0.01).start
        sleep(0.1) until (samples = sampler.points.sum(&:count)) >= SAMPLES
        sampler.stop
        (cpu - begun) / samples / 2
      end

      def self.now = ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
      def self.cpu = ::Process.clock_gettime(::Process::CLOCK_PROCESS_CPUTIME_ID)
    end
  end
end

Bench::Introspection::Process.call if $PROGRAM_NAME == __FILE__
