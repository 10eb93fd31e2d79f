# frozen_string_literal: true

require "spec_helper"
require "tmpdir"

# Rust ends a process that has no memory left; Ruby raises an error, which a program may rescue.
RSpec.describe "A process near the limit of its address space" do
  it "gets a clear error from each reading, and goes on" do
    found = Dir.mktmpdir do |folder|
      run_ruby("near_limit.rb", shared_module("eat.c"), folder, requires: []).must_succeed.json
    end
    fates = found[:fates]
    words = /\A(?:done|NoMemoryError|RegexpError|Errno::ENOMEM|Memintro::\w*Error)\z/
    expect(fates.values.flatten).to all(match(words)), fates.inspect
    expect(fates.values.map(&:size)).to eq([RUBY_VERSION < "3.2" ? 11 : 7] * 18)
    expect(fates[:totals]).to all(eq("done"))
    expect(fates[:top][...-4]).to all(eq("NoMemoryError"))
    expect(fates.transform_values(&:last).except(:account, :leaks, :heap_dump, :holders).values).to all(eq("done"))
    # It was made before, with all that it has.
    expect(found[:ready]).to match(same: true, backtrace: [], message: /\Amemintro needs 4 MiB of memory for this, /)
  end
end
