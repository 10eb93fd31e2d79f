# frozen_string_literal: true

# What Memintro.leaks costs a process of 0.2, 1 and 3 GB: for how long it stands still for each copy, and how much
# memory the copy searches in a second of processor time.
# Run by itself: ruby -Ilib bench/introspection/leaks.rb [GIGABYTES…]

require "json"
require_relative "support/rounds"

module Bench
  module Introspection
    # Each process is a new one, because memory that was freed stays in it.
    module Leaks
      ROUNDS = 3
      SIZES = [0.2, 1.0, 3.0].freeze
      # Bytes that a second of processor time must be enough for.
      LEAST_RATE = 1e9
      KINDS = %w[texts objects].freeze

      def self.call(sizes, out = $stdout)
        sizes.product(KINDS) do |gigabytes, kind|
          found = JSON.parse(IO.popen([RbConfig.ruby, "-I#{File.expand_path('../../lib', __dir__)}", __FILE__, "--one",
                                       kind, gigabytes.to_s], &:read), symbolize_names: true)
          rate = found[:searched] / (found[:search_ms] / 1e3)
          text = format("%3.1f GB of %-7s RSS %5d MiB, %9d blocks: stands still %6.1f ms a copy (most %6.1f), " \
                        "searches %5.2f GB in %6.0f ms of processor time: %4.2f GB/s", gigabytes, kind,
                        found[:rss] >> 20, found[:blocks], found[:pause], found[:most_pause], found[:searched] / 1e9,
                        found[:search_ms], rate / 1e9)
          out.puts(text + Rounds.verdict("at least 1 GB/s", rate >= LEAST_RATE))
        end
      end

      # In the process that is measured.
      def self.one(kind, gigabytes)
        require "memintro"
        kept = send(kind, gigabytes * 1e9)
        GC.start
        found = Array.new(ROUNDS) { Memintro.leaks(gc: false, confirm: false) }
        pauses = found.map(&:pause_ms)
        puts JSON.generate(rss: Memintro.rss, kept: kept.size, blocks: found.last.scanned_blocks,
                           pause: Statistics.median(pauses), most_pause: pauses.max,
                           searched: found.last.searched_bytes,
                           search_ms: Statistics.median(found.map(&:search_ms)))
      end

      # Bytes that are no addresses.
      def self.texts(bytes)
        Array.new((bytes / 4_096).to_i) { |number| number.to_s.ljust(4_000, "x") }
      end

      # Hashes and arrays full of addresses.
      def self.objects(bytes)
        Array.new((bytes / 1_600).to_i) do |number|
          { id: number, name: "x" * 900, list: Array.new(20) { |place| "#{number}-#{place}" } }
        end
      end
    end
  end
end

if ARGV.first == "--one"
  Bench::Introspection::Leaks.one(ARGV.fetch(1), Float(ARGV.fetch(2)))
else
  Bench::Introspection::Leaks.call(ARGV.empty? ? Bench::Introspection::Leaks::SIZES : ARGV.map { |size| Float(size) })
end
