# frozen_string_literal: true

# `rspec --require ./spec/matrix/support/allocator.rb`: every program that the specs start has another allocator
# preloaded, MEMINTRO_SPEC_ALLOCATOR=jemalloc, mimalloc or tcmalloc, behind the hook where that is preloaded too.

require_relative "../../spec_helper"
require_relative "allocators"

# Puts the allocator's library behind all other preloaded ones.
module OtherAllocator
  LIBRARY = Allocators.library(ENV.fetch("MEMINTRO_SPEC_ALLOCATOR"))

  def bare_env = super.merge("LD_PRELOAD" => LIBRARY)
  def preloaded_env(**options) = super.then { |env| env.merge("LD_PRELOAD" => "#{env['LD_PRELOAD']}:#{LIBRARY}") }
end

abort "#{ENV.fetch('MEMINTRO_SPEC_ALLOCATOR')} is not installed" unless OtherAllocator::LIBRARY
Subprocess.prepend(OtherAllocator)
Subprocess.singleton_class.prepend(OtherAllocator)

# Some examples are about something that an allocator does not do.
RSpec.configure do |config|
  config.before do |example|
    if OtherAllocator::LIBRARY.include?("mimalloc") && example.description.start_with?("finds the frees that a copied")
      skip "mimalloc does not soon hand out an address again, which is how missed frees are found"
    end
    skip "brings an allocator of its own" if example.metadata[:own_allocator]
    if OtherAllocator::LIBRARY.include?("jemalloc") && example.description.include?("pvalloc")
      skip "jemalloc has no pvalloc: glibc's gives a block that jemalloc's free takes badly, without the hook, too"
    end
    if example.file_path.end_with?("/native_truth_spec.rb") && !Allocators.survived?(OtherAllocator::LIBRARY)
      skip "#{File.basename(OtherAllocator::LIBRARY)} crashes this program without the hook, too: " \
           "spec/matrix/allocators_spec.rb has many short runs of it"
    end
  end
end
