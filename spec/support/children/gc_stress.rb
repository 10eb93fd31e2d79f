# frozen_string_literal: true

# Required last by programs that run under GC stress. A collection takes a millisecond, so a program of a second's
# work would run for an hour: the stress ends after some seconds, and the program goes on.
GC_STRESS_SECONDS = 2

GC.stress = true
Thread.new do
  sleep(GC_STRESS_SECONDS)
  GC.stress = false
end
