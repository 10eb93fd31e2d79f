# frozen_string_literal: true

# Count and bytes of all instruction sequences: memintro beside two walks of the heap, its own that does nothing but
# look which slots are taken, and Ruby's that finds nothing, and beside making a wrapper of each method's iseq. Run by
# itself: ruby -Ilib bench/introspection/iseqs.rb [METHODS] [OBJECTS]

require "memintro"
require "objspace"
require_relative "support/rounds"

methods = Integer(ARGV.fetch(0, "30000"))
code = Module.new
methods.times { |i| code.module_eval("def m#{i}(a) = a ? [a, #{i}].map { |b| b } : nil", "app/#{i % 900}.rb", i) }
kept = Array.new(Integer(ARGV.fetch(1, "1000000"))) { |i| [i.to_s] }
nobody = Class.new
walk = "heap walk that does nothing"
subjects = {
  walk => -> { Memintro::Native.heap_slots },
  "each_object that finds nothing" => -> { ObjectSpace.each_object(nobody) {} },
  "Memintro.iseqs" => -> { Memintro.iseqs },
  "Memintro.top_iseqs" => -> { Memintro.top_iseqs(20) },
  "Memintro.internals" => -> { Memintro.internals },
  "a wrapper of each method" => lambda {
    ObjectSpace.each_object(Module).sum do |owner|
      owner.instance_methods(false).sum do |name|
        ObjectSpace.memsize_of(RubyVM::InstructionSequence.of(owner.instance_method(name)))
      end
    end
  }
}
puts "#{Memintro.iseqs.count} instruction sequences, #{GC.stat(:heap_live_slots)} live slots"
Bench::Introspection::Rounds.print(Bench::Introspection::Rounds.measure(subjects), walk,
                                   aims: { "Memintro.iseqs" => { most: 1.3 } })
kept.clear
