# frozen_string_literal: true

# Required by RUBYOPT: starts tracking from another thread while the program works, and leaves at exit how many
# allocations were seen since.
require "#{ENV.fetch('MATRIX_LIB')}/memintro"

thread = Thread.new do
  sleep 0.02
  Memintro.start
end
at_exit do
  thread.join
  Memintro.start unless Memintro.tracking?
  seen = Memintro.totals.allocations
  File.write("#{ENV.fetch('MATRIX_ALLOCATIONS')}.#{Process.pid}", seen.to_s)
end
