# frozen_string_literal: true

# A leaf method that is compiled early and called often, and how much each of its lines took from malloc. What is
# larger than the largest slot (640 bytes) never fits a Ruby object.
require "json"

CALLS = 20_000

def lengthened(item)
  item.rjust(1000) # site: body
end

# rubocop:disable Layout/LineLength -- a literal is one line, and this one is beyond any slot
def leaf(text, item)
  i = item
  joined = "#{text}#{text}" # site: interpolation
  list = [i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i] # site: array
  pairs = { a: item, b: item, c: item, d: item, e: item, f: item, g: item, h: item, i: item, j: item } # site: hash
  times = item * 900 # site: call
  padded = item.ljust(900) # site: ljust
  longer = lengthened(item) # site: called
  [joined, list, pairs, times, padded, longer].size
end
# rubocop:enable Layout/LineLength

def caller_of_leaf(text, item, calls)
  i = 0
  while i < calls
    leaf(text, item) # site: caller
    i += 1
  end
end

def line(name)
  "#{__FILE__}:#{File.foreach(__FILE__).find_index { |text| text.end_with?("# site: #{name}\n") } + 1}"
end

text = "t" * 650
Memintro.start
# Once before, so that the heap has grown and the code is compiled.
2.times { caller_of_leaf(text, "x", CALLS) }
GC.start
Memintro.clear
caller_of_leaf(text, "x", CALLS)
sites = Memintro.each_call_site.to_a

names = %w[interpolation array hash call ljust body called]
found = names.to_h do |name|
  site = sites.find { |one| one.name == line(name) }
  [name, site && [site.allocations, site.total_bytes]]
end
known = names.map { |name| line(name) }
strays = sites.select { |site| site.name.start_with?(__FILE__) && site.allocations > CALLS / 100 }
                 .map(&:name) - known
enabled = defined?(RubyVM::YJIT) && RubyVM::YJIT.enabled?
compiled = enabled && RubyVM::YJIT.runtime_stats.to_h[:compiled_iseq_count].to_i.positive?
puts JSON.generate(found.merge(yjit: enabled, compiled: compiled, strays: strays))
