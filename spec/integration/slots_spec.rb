# frozen_string_literal: true

require "spec_helper"

# The slots that start writes in loaded modules, read back by a program with a relocation parser of its own.
RSpec.describe "Relocation slots of the allocator's functions" do
  let(:usual_modules) {
    %w[libz.so.1 libffi.so.8 libgmp.so.10 libxml2.so.2 libyaml-0.so.2].select { |name|
      loadable?(name)
    }
  }

  def loadable?(name)
    Fiddle.dlopen(name)
  rescue Fiddle::DLError
    false
  end

  before(:all) { require "fiddle" }

  %i[lazy now no_plt no_pie].each do |variant|
    it "are all replaced by start and all restored by stop in a program linked #{variant}" do
      modules = [shared_module("blocks.c"), shared_module("blocks.c", variant: :now), shared_module("data_slots.c")]
      figures = native(program("slots.c", variant: variant), *modules, "libstdc++.so.6", *usual_modules, way: :live)
      expect(figures).to include(unpatched: 0, changed: 0, stop: 0, said_lost: 0, said_malformed: 0, said_refused: 0)
      expect(figures[:slots]).to be > 30
      expect(figures).to include(patched: figures[:slots], restored: figures[:slots])
      expect(figures[:said_patched]).to be >= figures[:slots]
    end
  end

  it "are also patched in sampled mode" do
    env = { "SLOTS_SAMPLE_BYTES" => "524288" }
    figures = native(program("slots.c"), shared_module("blocks.c", variant: :now), way: :live, env: env)
    expect(figures).to include(unpatched: 0, changed: 0, stop: 0, said_lost: 0, protections_after: true)
    expect(figures[:slots]).to be > 5
    expect(figures).to include(patched: figures[:slots], restored: figures[:slots])
  end

  it "are all replaced and all restored in libruby, which is fully read-only" do
    libruby = File.foreach("/proc/self/maps").filter_map { |line| line[%r{/\S*libruby\S*\.so\S*$}] }.first
    skip "this Ruby has no libruby of its own" unless libruby
    figures = native(program("slots.c"), libruby, way: :live)
    expect(figures).to include(unpatched: 0, changed: 0, said_lost: 0, patched: figures[:slots])
    expect(figures).to include(protections_during: true, protections_after: true)
  end

  it "lie in pages whose protection is the same during and after as before" do
    figures = native(program("slots.c"), shared_module("blocks.c", variant: :now), *usual_modules, way: :live)
    expect(figures).to include(protections_during: true, protections_after: true)
  end

  it "are replaced in a process of 300 modules in under 50 ms" do
    Dir.mktmpdir do |folder|
      original = shared_module("tiny.c")
      copies = Array.new(300) { |i| File.join(folder, "libtiny#{i}.so").tap { |copy| FileUtils.cp(original, copy) } }
      figures = native(program("slots.c"), *copies, way: :live, env: { "SLOTS_ROUNDS" => "60" })
      expect(figures).to include(unpatched: 0, changed: 0)
      expect(figures[:slots]).to be >= 1200
      expect(figures[:start_ms]).to be < 50
      expect(figures[:stop_ms]).to be < 50
    end
  end
end
