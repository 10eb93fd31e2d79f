# frozen_string_literal: true

# Compiles some hundred methods, each with branches that are compiled later on their own, while everything is tracked.
# The compiler allocates in the middle of a call, when frames may have a stale program counter.
require "json"

METHODS = 400
LINES = 7 # of each method
CALLS = 60

def define_methods
  METHODS.times do |i|
    Object.class_eval(<<~RUBY, "generated.rb", (i * LINES) + 1)
      def generated_#{i}(n)
        return 0 if n.zero?
        list = [n, n + 1].map { |item| item.odd? ? item.to_s : item }
        text = list.join("-")
        text = text.upcase if n > 30
        n.even? ? generated_#{i}(n / 2).to_i + 1 : text.size
      end
    RUBY
  end
end

define_methods
before = RubyVM::YJIT.runtime_stats[:compiled_iseq_count].to_i
Memintro.start
METHODS.times { |i| CALLS.times { |n| send(:"generated_#{i}", n) } }
GC.start
Memintro.stop
compiled = RubyVM::YJIT.runtime_stats[:compiled_iseq_count].to_i - before

own = File.foreach(__FILE__).count
limits = { "generated.rb" => METHODS * LINES, __FILE__ => own }
strays = Memintro.each_call_site.select do |site|
  site.kind == :ruby && !site.lineno.between?(1, limits.fetch(site.path) { 100_000 })
end
puts JSON.generate(compiled: compiled, strays: strays.map(&:name), missed_frees: Memintro.totals.missed_frees)
