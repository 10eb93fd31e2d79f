# frozen_string_literal: true

require "spec_helper"

# The traps of a start in a running process: binding, data slots, modules that come and go, copied pointers.
RSpec.describe "A live start" do
  # Runs one case of live.c; figures of a site are [allocations, frees, total_bytes, freed_bytes].
  def live(name, *arguments, variant: :lazy, **options)
    native(program("live.c", variant: variant), name, *arguments, way: :live, **options)
  end

  let(:stopped) { { stop: 0, mode: 0, origin: 1, dropped: 0, missed_frees: 0 } }

  %i[lazy now no_plt].each do |variant|
    it "follows a module bound #{variant} whose functions are first called after it" do
      figures = live("first_call_after_start", shared_module("blocks.c", variant: variant))
      expect(figures).to include(**stopped, module_malloc: [100, 100, 100_100, 100_100],
                                            module_calloc: [100, 50, 77_700, 38_850],
                                            module_realloc: [100, 100, 200_200, 200_200])
    end

    it "follows a module bound #{variant} that is loaded while tracking" do
      figures = live("loaded_while_tracking", shared_module("blocks.c", variant: variant))
      expect(figures).to include(**stopped, module_malloc: [50, 40, 216_050, 172_840])
    end
  end

  it "follows a program that is linked without PLT, fully read-only or at a fixed address" do
    %i[now no_plt no_pie].each do |variant|
      figures = live("first_call_after_start", shared_module("blocks.c"), variant: variant)
      expect(figures).to include(**stopped, module_malloc: [100, 100, 100_100, 100_100])
    end
  end

  it "binds at start what LD_BIND_NOW binds, with the same figures" do
    figures = live("first_call_after_start", shared_module("blocks.c"), env: { "LD_BIND_NOW" => "1" })
    expect(figures).to include(**stopped, module_malloc: [100, 100, 100_100, 100_100])
  end

  it "stops after a module was unloaded, and leaves its memory alone" do
    figures = live("loaded_while_tracking", shared_module("blocks.c"), "close")
    expect(figures).to include(**stopped, dlclose: 0, module_malloc: [50, 40, 216_050, 172_840])
  end

  it "does not stand between a module and what its $ORIGIN RUNPATH finds" do
    loader = shared_module("origin_loader.c", flags: ["-Wl,-rpath,$ORIGIN,--enable-new-dtags", "-ldl"])
    Dir.mktmpdir do |folder|
      FileUtils.cp(loader, File.join(folder, "libloader.so"))
      FileUtils.cp(shared_module("blocks.c"), File.join(folder, "libmemintro_spec_plugin.so"))
      expect(live("origin_runpath",
                  File.join(folder, "libloader.so"))).to include(**stopped, module_malloc: [7, 0, 6993, 0])
    end
  end

  it "finds the frees that a copied pointer hid from it, and counts them" do
    figures = live("copied_before_start")
    same = figures.fetch(:pairs).first
    expect(same).to eq 10
    expect(figures).to include(stop: 0, missed_frees: 10, own_malloc: [20, 20, 12_800, 12_800])
  end

  it "never shows a figure below zero while frees go missing" do
    figures, with_table = %w[auto table].map do |records|
      live("many_missed_frees", env: { "MEMINTRO_RECORDS" => records })
    end
    [figures, with_table].each do |each|
      expect(each).to include(negative: 0, stop: 0)
      expect(each[:missed_frees]).to be_between(1, 5 * 1667)
      expect(each[:own_malloc].first).to eq 25_000
    end
    expect(with_table).to include(dropped: 0)
    # All blocks are freed. The table knows of those whose addresses have come again; what was lost with damaged records
    # is in no sum any more, either.
    expect(figures[:own_malloc][1]).to be_between(with_table[:own_malloc][1], 25_000)
    expect(figures[:own_malloc][3]).to be_between(with_table[:own_malloc][3], figures[:own_malloc][2])
  end

  %i[lazy now no_pie].each do |variant|
    it "leaves the hook's functions working after stop in a program linked #{variant}" do
      figures = live("pointer_kept_across_stop", shared_module("blocks.c"), variant: variant)
      expect(figures).to include(after_stop: 1, mode: 1, missed_frees: 0)
    end
  end

  it "replaces a data slot that holds the real function, and puts it back" do
    expect(live("data_slots", shared_module("data_slots.c")))
      .to include(**stopped, replaced: 1, restored: 1, through_table_malloc: [20, 15, 12_120, 9090],
                             own_malloc: [0, 0, 0, 0])
  end

  it "leaves a data slot alone that holds the program's own function" do
    expect(live("data_slots", shared_module("data_slots.c"), "own"))
      .to include(**stopped, replaced: 0, restored: 1, through_table_malloc: [0, 0, 0, 0],
                             own_malloc: [20, 15, 12_120, 9090])
  end

  it "does not restore a data slot that the program has taken since" do
    expect(live("data_slots", shared_module("data_slots.c"), "later"))
      .to include(**stopped, replaced: 1, restored: 1, through_table_malloc: [20, 15, 12_120, 9090])
  end

  it "answers a second start, a second stop and an unknown mode with their codes" do
    expect(live("options")).to include(start: 0, again: 1, bad_mode: -2, stop: 0, stop_again: 1)
  end

  it "survives modules that come and go while others start, stop and read everything" do
    Dir.mktmpdir do |folder|
      copies = Array.new(20) { |i| File.join(folder, "lib#{i}.so") }
      copies.each { |copy| FileUtils.cp(shared_module("blocks.c"), copy) }
      expect(live("everything_at_once", 1500, *copies)).to include(wrong: 0, mode: 0)
    end
  end

  it "survives a thousand rounds of start and stop while four threads allocate, and leaves nothing behind" do
    figures = live("rounds", 1000)
    expect(figures).to include(rounds: 1000, refused: 0, negative: 0, mode: 0)
    expect(figures[:map_growth]).to be <= 4
    expect(figures[:rss_growth_bytes]).to be < 4 << 20
  end
end
