# frozen_string_literal: true

# What a snapshot costs in a process of a Rails application's size: a gigabyte, millions of objects, tracking, thousands
# of call sites. Each part beside the same question asked of ObjectSpace; rounds are interleaved, figures are medians.
# Run by itself: ruby -Ilib bench/introspection/snapshot.rb [GIBIBYTES]

require "json"
require "memintro"
require "objspace"
require "tempfile"
require_relative "support/rounds"

module Bench
  module Introspection
    # Prints milliseconds for each part, and how many times a heap walk that does nothing that is.
    module Snapshot
      SITES = 5_000
      METHODS = 30_000
      GIB = 2**30

      # What is timed.
      SUBJECTS = {
        "light" => -> { Memintro.snapshot },
        "light, inspect" => -> { Memintro.snapshot.inspect },
        **Memintro::Snapshot::Parts::ALL.to_h { |part| ["part :#{part}", -> { Memintro.snapshot(part) }] },
        "all parts" => -> { Memintro.snapshot(:all) },
        "all parts, saved" => -> { Tempfile.create { |file| Memintro.snapshot(:all).save(file.path) } },
        "difference of two" => -> { @pair.last - @pair.first },
        "each_object, empty" => -> { ObjectSpace.each_object(BasicObject) {} },
        "each_object, by class" => -> { count_by_class },
        "memsize_of_all" => -> { ObjectSpace.memsize_of_all }
      }.freeze
      EMPTY = "each_object, empty"

      def self.call(gib, out = $stdout)
        Memintro.start
        @kept = fill(gib)
        out.puts("#{(Memintro.rss / GIB.to_f).round(2)} GiB, #{GC.stat(:heap_live_slots)} live slots, " \
                 "#{Memintro.iseqs.count} instruction sequences, #{Memintro.each_call_site.count} call sites")
        @pair = Array.new(2) { Memintro.snapshot(:all) }
        subjects = SUBJECTS.transform_values { |work| -> { instance_exec(&work) } }
        Rounds.print(Rounds.measure(subjects), EMPTY, out, aims: { "light" => { most_ms: 5 } })
      end

      # An application: code, small objects that refer to each other, and some that are large.
      def self.fill(gib)
        code = Module.new
        METHODS.times do |i|
          code.module_eval("def m#{i}(a) = a ? [a, #{i}].map { |b| b } : nil", "app/#{i % 900}.rb", i)
        end
        sites = (1..SITES).map { |i| code.module_eval("'x' * 300", "app/site#{i}.rb", i) }
        objects = Array.new((1_500_000 * gib).to_i) { |i| [i.to_s, { i => "value #{i}" }] }
        large = []
        large << ("y" * 65_536) while Memintro.rss < gib * GIB
        [code, sites, objects, large]
      end

      def self.count_by_class
        counts = Hash.new(0)
        ObjectSpace.each_object(BasicObject) { |object| counts[object.class] += 1 if Object === object }
      end
    end
  end
end

Bench::Introspection::Snapshot.call(Float(ARGV.fetch(0, "1"))) if $PROGRAM_NAME == __FILE__
