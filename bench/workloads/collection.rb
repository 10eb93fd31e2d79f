# frozen_string_literal: true

# How long a full collection takes among three million objects, a third of which have a block of malloc: one that finds
# nothing to free, and one that frees 300,000 strings with a block each. Program.result has the medians of seven,
# milliseconds of processor time.

KEPT = []
Program.rounds(1_000_000) { |i| KEPT << "row #{i}" << [i, nil] << ("x" * 60) }

def collection_ms
  clock = Process::CLOCK_PROCESS_CPUTIME_ID
  begun = Process.clock_gettime(clock, :float_millisecond)
  GC.start
  Process.clock_gettime(clock, :float_millisecond) - begun
end

# What is young is looked at by the collections that make it old, too.
4.times { GC.start }
GC.disable
nothing = Array.new(7) { collection_ms }
garbage = Array.new(7) do
  Program.rounds(300_000) { "y" * 60 }
  collection_ms
end
Program.result = [nothing, garbage].map { |times| times.sort[3].round(3) }.join(",")
