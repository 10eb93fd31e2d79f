# frozen_string_literal: true

# Paths of this machine's other allocators, under the names of every supported Debian release.
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

  # @param library [String] path
  # @return [Boolean] whether the truth program lives through a long run with it and without memintro
  def survived?(library)
    @survived ||= {}
    @survived.fetch(library) do
      env = { "LD_PRELOAD" => library, "TRUTH_BARE" => "1" }
      arguments = [NativePrograms.program("truth.cc"), "300000", "4", "1"]
      @survived[library] = Array.new(3) { Subprocess.run_command(*arguments, env: env).success? }.all?
    end
  end
end
