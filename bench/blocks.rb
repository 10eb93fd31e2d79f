# frozen_string_literal: true

require "optparse"
require_relative "setup"

module Bench
  # `bin/bench table` and `bin/bench criterion`: the benchmarks of `crates/bench`, which cargo builds and runs.
  module Blocks
    # Libraries of other allocators, under the names of every supported Debian release, and the packages that have them.
    ALLOCATORS = {
      "jemalloc" => ["libjemalloc.so.2", "libjemalloc2"],
      "mimalloc" => ["libmimalloc.so.[23]", "libmimalloc2.0 or libmimalloc3"],
      "tcmalloc" => ["libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"]
    }.freeze

    module_function

    # @param cases [Array<String>] names of cases, `list` or `all`; none: all but the huge ones
    # @param allocator [String, nil] a key of ALLOCATORS; nil: glibc's
    # @return [Boolean] whether they ran
    def table(cases, allocator: nil, quick: false)
      env = allocator ? { "MEMINTRO_BENCH_ALLOCATOR" => library(allocator) } : {}
      cargo(env, "table", "--", *("--quick" if quick), *(cases - ["--"]))
    end

    def criterion(arguments) = cargo({}, "criterion", *arguments)

    # @return [String] path
    def library(allocator)
      pattern, package = ALLOCATORS.fetch(allocator)
      Dir["/usr/lib/*-linux-gnu/#{pattern}"].min or
        raise OptionParser::InvalidArgument, "#{allocator} is not installed (Debian's package #{package})"
    end

    def cargo(env, *arguments)
      command = ["cargo", "bench", "--locked", "--package", "memintro-bench", "--bench", *arguments]
      system(env, *command, chdir: Setup::ROOT)
    end
  end
end
