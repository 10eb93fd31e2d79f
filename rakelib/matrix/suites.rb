# frozen_string_literal: true

module Matrix
  # The suites that are run on a Ruby with one allocator.
  #
  # name: what the table calls it; allocator: "glibc", or the one preloaded in every program that the specs start;
  # arguments: of rspec; smoke: part of the short run; jit: compiled, where the Ruby has a compiler. What counts blocks
  # by line is not: what the compiler takes while it compiles a line is put down to that line, too. no_ruby: its
  # programs have no Ruby in them, so it is run once in each Debian release. records: where the programs that the specs
  # start keep what is known of a block, as in MEMINTRO_RECORDS; nil: as they would by themselves.
  Suite = Struct.new(:name, :allocator, :arguments, :smoke, :jit, :no_ruby, :records, keyword_init: true)

  # A native or a Ruby program compares its own count of allocations with the hook's figures.
  NATIVE_TRUTH = %w[spec/integration/native_truth_spec.rb].freeze
  TRUTH = %w[spec/integration/ruby_truth_spec.rb spec/integration/objects_spec.rb
             spec/integration/chosen_objects_spec.rb spec/integration/sampled_objects_spec.rb
             spec/integration/stacks_spec.rb].freeze
  # What Ruby counts differs from one Ruby to the next, as that 3.4 counts objects that move.
  COUNTS = %w[spec/integration/measure_spec.rb spec/integration/account_spec.rb
              spec/integration/account_details_spec.rb spec/integration/account_scenarios_spec.rb].freeze
  # Where each Ruby keeps references, their names and its roots is found anew in each.
  HEAP = %w[spec/integration/holders_spec.rb spec/integration/held_stories_spec.rb spec/integration/heap_edges_spec.rb
            spec/integration/heap_dump_spec.rb].freeze
  # Programs that memintro once harmed, and public stories with their answers.
  HARM_AND_STORIES = Dir[File.expand_path("../../spec/integration/{harm,story}_*_spec.rb", __dir__)].sort.map do |file|
    "spec/integration/#{File.basename(file)}"
  end.freeze
  # Checks in tests, and of memory checks the first two: every planted mistake, and nothing but these.
  TESTS = ["spec/integration/rspec_matchers_spec.rb", "spec/integration/minitest_assertions_spec.rb",
           "spec/integration/mem_check_spec.rb[1:1,1:2]"].freeze
  # Tests that depend on the allocator behind the hook: the same truth tests as with glibc, C++ included.
  BEHIND_THE_HOOK = [*NATIVE_TRUTH, *TRUTH, "spec/integration/libraries_spec.rb", "spec/integration/call_sites_spec.rb",
                     "spec/integration/live_start_spec.rb", "spec/integration/native_processes_spec.rb",
                     "spec/integration/threads_spec.rb"].freeze
  # What else differs with the place in which a block is known.
  AMID_BLOCKS = %w[old_blocks leaks_core leaks_truth gate_attacks forking_handlers measure ruby_processes dying]
                .map { |name| "spec/integration/#{name}_spec.rb" }.freeze
  OTHER_ALLOCATOR = ["--require", "./spec/matrix/support/allocator.rb"].freeze
  # The gem is installed before all others, and only once.
  USUAL = ["--tag", "~long", "--tag", "~gem"].freeze

  # Without what tests the kernel, the C library or a command in a program of Ruby's: the whole run has it.
  OF_THE_VM = ["--tag", "~vm_long"].freeze

  SUITES = [
    Suite.new(name: "native truth", allocator: "glibc", arguments: [*USUAL, *NATIVE_TRUTH], smoke: :only,
              no_ruby: true),
    # Debian 13's Rubies have rbs, which a Debian 12 has not.
    Suite.new(name: "truth", allocator: "glibc",
              arguments: [*USUAL, *OF_THE_VM, *TRUTH, *COUNTS, *HEAP, *TESTS, *HARM_AND_STORIES,
                          "spec/unit/signatures_spec.rb"],
              smoke: :only),
    Suite.new(name: "spec", allocator: "glibc", arguments: [*USUAL, "spec/unit", "spec/integration"]),
    Suite.new(name: "matrix", allocator: "glibc", arguments: [*USUAL, "spec/matrix"], jit: true),
    # Each of 0.1 and 1 GiB, tracked and not, on glibc and jemalloc.
    Suite.new(name: "accounts", allocator: "glibc",
              arguments: ["--tag", "long", "spec/integration/account_scenarios_spec.rb"]),
    # With glibc, "spec" and "matrix" run with records within the blocks. Behind other allocators, all is in the table.
    Suite.new(name: "table", allocator: "glibc", records: "table",
              arguments: [*USUAL, *BEHIND_THE_HOOK, *AMID_BLOCKS, "spec/matrix/allocators_spec.rb"]),
    *%w[jemalloc mimalloc tcmalloc].map do |allocator|
      Suite.new(name: "behind the hook", allocator: allocator, arguments: [*OTHER_ALLOCATOR, *USUAL, *BEHIND_THE_HOOK])
    end
  ].freeze

  # The suites of a whole run, or of the short one.
  #
  # @param again [Boolean] whether an earlier Ruby ran in the same Debian release
  # @param names [Array<String>] of those alone; none: all
  def self.suites(smoke:, again: false, names: [])
    unknown = names - SUITES.map(&:name)
    raise Failed, "there is no suite #{unknown.join(', ')}" if unknown.any?

    SUITES.select do |suite|
      next names.include?(suite.name) if names.any?

      (smoke ? suite.smoke : suite.smoke != :only) && !(again && suite.no_ruby)
    end
  end
end
