# A program that leaks memory Ruby knows nothing of. Find the line: exe/memintro run -- ruby examples/leak.rb
require "fiddle"
require "objspace"

def usage
  puts "RSS #{File.read('/proc/self/status')[/VmRSS:\s+(.*)/, 1]}, ObjectSpace #{ObjectSpace.memsize_of_all / 1024} kB"
end

def leak_memory
  pointers = []
  100_000.times do
    i = Fiddle.malloc(1024)
    pointers << i
  end
  50_000.times do
    Fiddle.free(pointers.pop)
  end
end

usage
leak_memory
usage
