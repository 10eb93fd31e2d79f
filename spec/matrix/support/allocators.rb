# frozen_string_literal: true

# Where this machine's other allocators are, under the names of every supported Debian release.
module Allocators
  PATTERNS = {
    "jemalloc" => "libjemalloc.so.2",
    "mimalloc" => "libmimalloc.so.[23]",
    "tcmalloc" => "libtcmalloc_minimal.so.4"
  }.freeze

  module_function

  # @return [String, nil] path of its library
  def library(name)
    pattern = PATTERNS.fetch(name) { raise "no allocator #{name}: #{PATTERNS.keys.join(', ')}" }
    Dir["/usr/lib/*-linux-gnu/#{pattern}"].min
  end
end
