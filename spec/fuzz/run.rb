# frozen_string_literal: true

# run.rb TARGET SECONDS [SEED]: see rakelib/fuzz.rake.

$LOAD_PATH.unshift(File.expand_path("../../lib", __dir__))
require "memintro"

name, seconds, seed = ARGV
seed = seed ? Integer(seed, 10) : Random.new_seed % (2**32)
require_relative name
target = Fuzz.const_get(name.capitalize).new(seed)
ends = Process.clock_gettime(Process::CLOCK_MONOTONIC) + Integer(seconds, 10)
puts "#{name}: seed #{seed}, #{seconds} s"
target.run { Process.clock_gettime(Process::CLOCK_MONOTONIC) < ends }
puts target
exit(1) if target.failures.any?
