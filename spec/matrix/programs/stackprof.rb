# frozen_string_literal: true

# Work under stackprof's timer signals and its allocation hook. ORDER: which of the two is there first, memintro
# (when this program is tracked) or the profiler; without memintro it makes no difference.
require "stackprof"

def work
  total = 0
  300_000.times { |i| total += "line #{i} #{'x' * 700}".sum }
  total
end

begin_tracking = ENV["MATRIX_START"] ? -> { Memintro.start } : -> {}
# Preloaded, it is on from the start.
Memintro.stop if ENV["MATRIX_START"] && ENV["ORDER"] == "profiler first"
line = File.foreach(__FILE__).find_index { |text| text.include?("x' * 700") } + 1
results = %i[wall cpu object].map do |mode|
  begin_tracking.call if ENV["ORDER"] == "memintro first"
  profile = StackProf.run(mode: mode, interval: mode == :object ? 100 : 1000) do
    begin_tracking.call if ENV["ORDER"] == "profiler first"
    puts work
    Memintro.stop if ENV["MATRIX_START"] && ENV["ORDER"] == "profiler first"
  end
  Memintro.stop if ENV["MATRIX_START"] && ENV["ORDER"] == "memintro first"
  warn Memintro["#{__FILE__}:#{line}"].allocations if ENV["MATRIX_START"]
  [mode, profile[:samples] > 20, profile[:frames].values.any? { |frame| frame[:name].include?("work") }]
end
puts results.inspect
