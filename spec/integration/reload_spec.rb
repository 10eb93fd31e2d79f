# frozen_string_literal: true

require "spec_helper"

# Modules that come and go: a place in one is one call site, wherever it is loaded, and never somebody else's.
RSpec.describe "Call sites in modules that are unloaded", :race do
  let(:plugin) { shared_module("plugin.c", flags: ["-DMARK=1"], suffix: "one") }
  let(:other) { shared_module("plugin.c", flags: ["-DMARK=7"], suffix: "other") }
  let(:program_path) { program("reload.c") }

  # Figures without the offsets, which the compiler decides: [file, loaded, allocations, total bytes, live bytes].
  def figures(sites) = sites.map { |file, _, *rest| [file, *rest] }.sort_by { |row| [row[0], row[3]] }

  def reload(rounds, *plugins, move: 1, max_sites: 1000, way: :preloaded)
    native(program_path, rounds, move, max_sites, *plugins, way: way)
  end

  it "are one for each place of a plugin that is loaded at fifty addresses" do
    told = reload(50, plugin)
    expect(told).to include(bases: 50, other: 0, missed_frees: 0)
    expect(figures(told[:sites])).to eq [["libplugin-one.so", true, 50, 5050, 0],
                                         ["libplugin-one.so", true, 50, 10_050, 10_050],
                                         ["libplugin-one.so", true, 50, 50_050, 1001]]
    expect(told[:sites].map { |site| site[1] }).to all(be_between(0x100, 0x10_000))
  end

  it "are so for a live start, from the look-up on that follows the loading" do
    told = reload(50, plugin, way: :live)
    expect(told).to include(bases: 50, other: 0, missed_frees: 0)
    expect(figures(told[:sites]).first(2)).to eq [["libplugin-one.so", true, 50, 5050, 0],
                                                  ["libplugin-one.so", true, 50, 10_050, 10_050]]
  end

  it "do not use max_sites up" do
    known = reload(1, plugin)[:known_sites]
    TruthDriver::WAYS.each do |way|
      told = reload(200, plugin, max_sites: known + 5, way: way)
      expect(told).to include(other: 0, known_sites: be <= known + 5, bases: 200)
    end
  end

  # The C++ runtime comes and goes with the plugin.
  TruthDriver::WAYS.each do |way|
    it "are a C++ plugin's own lines, not its runtime's, #{way}" do
      %i[lazy now no_plt].each do |variant|
        told = reload(20, shared_module("cxx_plugin.cc", variant: variant), way: way)
        file = "libcxx_plugin-#{variant}.so"
        expect(told).to include(bases: 20, other: 0, missed_frees: 0)
        expect(figures(told[:sites])).to eq [[file, true, 20, 2020, 0], [file, true, 20, 2560, 0],
                                             [file, true, 20, 4020, 4020]]
      end
    end
  end

  it "keep their module's name when another module is at their address" do
    told = reload(51, plugin, other, move: 0)
    expect(told).to include(bases: be_between(1, 3), other: 0)
    expect(figures(told[:sites])).to eq [
      ["libplugin-one.so", true, 26, 2626, 0], ["libplugin-one.so", true, 26, 5226, 5226],
      ["libplugin-one.so", true, 26, 26_026, 1001], ["libplugin-other.so", false, 25, 2675, 0],
      ["libplugin-other.so", false, 25, 5175, 5175], ["libplugin-other.so", false, 25, 25_175, 0]
    ]
  end

  it "keep it in a dump" do
    Dir.mktmpdir do |folder|
      dump = File.join(folder, "dump")
      native(program_path, 2, 0, 1000, other, plugin, way: :preloaded, env: { "RELOAD_DUMP" => dump })
      report = JSON.parse(run_memintro("report", "--json", dump).must_succeed.stdout, symbolize_names: true)
      figures = report[:call_sites].filter_map do |site|
        plugin = site[:name][/\Alibplugin-(\w+)\.so\(\+0x\h+\)\z/, 1]
        [plugin, *site.values_at(:allocations, :total_bytes)] if plugin
      end
      expect(figures).to match_array([["other", 1, 107], ["other", 1, 207], ["other", 1, 1007],
                                      ["one", 1, 101], ["one", 1, 201], ["one", 1, 1001]])
    end
  end

  it "are others where something else was built at the same path" do
    Dir.mktmpdir do |folder|
      path = File.join(folder, "libplugin.so")
      File.write(File.join(folder, "replace.rb"), <<~RUBY)
        require "fiddle"
        require "memintro"
        Memintro.start
        #{[plugin, other].inspect}.each do |source|
          # Not written over, for it was loaded once.
          system("cp", source, "\#{ARGV[0]}.new", exception: true)
          File.rename("\#{ARGV[0]}.new", ARGV[0])
          library = Fiddle.dlopen(ARGV[0])
          Fiddle::Function.new(library["plugin_kept"], [], Fiddle::TYPE_VOIDP).call
          library.close
        end
        puts Memintro.each_call_site.map { |site| [site.name, site.total_bytes] }.select { |name, _| name.include?("plugin") }.inspect
      RUBY
      result = run_command(RbConfig.ruby, "-I#{Subprocess::LIB}", File.join(folder, "replace.rb"), path).must_succeed
      expect(result.stdout).to match(/\A\[\["libplugin.so\(\+0x\h+\)", 201\], \["libplugin.so\(\+0x\h+\)", 207\]\]\n\z/)
    end
  end

  it "are named with their symbol by who has seen it, and else by their offset" do
    code = <<~RUBY
      require "fiddle"
      Memintro.start
      show = -> { puts Memintro.each_call_site.map(&:name).grep(/plugin/).sort.join(" ") }
      library = Fiddle.dlopen(ARGV[0])
      call = ->(name) { Fiddle::Function.new(library[name], [], Fiddle::TYPE_VOIDP).call }
      call["plugin_kept"]
      show.call if ARGV[1]
      library.close
      show.call
    RUBY
    symbol = /\Alibplugin-one.so\(plugin_kept\+0x\h+\)\z/
    seen = run_ruby(nil, plugin, "seen", code: code).must_succeed.stdout.lines.map(&:chomp)
    expect(seen).to match [symbol, symbol]
    expect(run_ruby(nil, plugin, code: code).must_succeed.stdout).to match(/\Alibplugin-one.so\(\+0x\h+\)\n\z/)
  end
end
