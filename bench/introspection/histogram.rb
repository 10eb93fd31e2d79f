# frozen_string_literal: true

# Objects by class: memintro beside ObjectSpace. Run by itself: ruby -Ilib bench/introspection/histogram.rb [OBJECTS]

require "memintro"
require "objspace"
require_relative "support/rounds"

kept = Array.new(Integer(ARGV.fetch(0, "10000000")) / 2) { |i| i.odd? ? [i] : i.to_s }
kept.concat(Array.new(kept.size) { Object.new })
subjects = {
  "Memintro.histogram" => -> { Memintro.histogram },
  "Memintro.histogram(20)" => -> { Memintro.histogram(20) },
  "ObjectSpace.memsize_of_all" => -> { ObjectSpace.memsize_of_all },
  "each_object, by class" => lambda {
    counts = Hash.new(0)
    ObjectSpace.each_object { |object| counts[object.class] += 1 }
  },
  "each_object, by class, with bytes" => lambda {
    bytes = Hash.new(0)
    ObjectSpace.each_object { |object| bytes[object.class] += ObjectSpace.memsize_of(object) }
  }
}
puts "#{GC.stat(:heap_live_slots)} live slots"
Bench::Introspection::Rounds.print(Bench::Introspection::Rounds.measure(subjects, count: 3), "Memintro.histogram",
                                   aims: { "Memintro.histogram" => { most_ms: 1000 },
                                           "each_object, by class" => { least: 10 } })
kept.clear
