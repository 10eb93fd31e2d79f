# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../../ext/memintro/cargo_build"
require "tmpdir"

# The gem is built, installed into an empty GEM_HOME and used from an empty folder. What knows no Ruby is compiled
# already, by the same cargo from the same lock file; cargo finds memintro's own crates fresh only where each of their
# files is in the gem with the bytes that were compiled (spec/support/with_crates).
RSpec.describe "the installed gem", :gem do
  INSTALLED_LEAK = <<~RUBY
    require "memintro"
    require "fiddle"
    Memintro.start
    pointers = []
    1_000.times do
      pointer = Fiddle.malloc(1_024)
      pointers << pointer
    end
    250.times { Fiddle.free(pointers.pop) }
    site = Memintro["leak.rb:6"]
    puts [site.allocations, site.frees, site.live_bytes].join(" ")
    puts Gem.loaded_specs.fetch("memintro").full_gem_path
  RUBY
  WITH_CRATES = File.join(Subprocess::ROOT, "spec", "support", "with_crates")
  OWN_CRATES = { "memintro" => "ext/memintro" }.merge(
    %w[abi analysis core_file elf heap hook native tool tracker].to_h do |name|
      ["memintro-#{name.tr('_', '-')}", "crates/#{name}"]
    end
  ).freeze

  before(:context) do
    @folder = Dir.mktmpdir("memintro gem")
    @home = File.join(@folder, "home")
    @env = Subprocess.bare_env.merge("GEM_HOME" => @home, "GEM_PATH" => nil, "RUBYLIB" => nil,
                                     "CARGO_TARGET_DIR" => nil)
    building = @env.merge("PATH" => "#{WITH_CRATES}:#{ENV.fetch('PATH')}",
                          "MEMINTRO_SPEC_CRATES" => CargoBuild.new.target_folder,
                          "MEMINTRO_SPEC_CHECKOUT" => Subprocess::ROOT, "MEMINTRO_SPEC_OPT_LEVEL" => "0",
                          "CARGO_TERM_VERBOSE" => "true")
    gem_file = File.join(@folder, "memintro.gem")
    [["gem", "build", "memintro.gemspec", "--output", gem_file],
     ["gem", "install", "--local", "--no-document", gem_file]].each do |command|
      Subprocess.run_command(*command, env: building, chdir: Subprocess::ROOT,
                                       deadline_seconds: 1_200).must_succeed
    end
    File.write(File.join(@folder, "leak.rb"), INSTALLED_LEAK)
  end

  after(:context) { FileUtils.rm_rf(@folder) }

  def in_folder(*command, **options)
    run_command(*command, env: @env, chdir: @folder, **options).must_succeed
  end

  it "puts both libraries and the tool side by side and leaves no build folder behind" do
    installed = Dir[File.join(@home, "gems", "memintro-*")].first
    expect(Dir.children(File.join(installed, "lib", "memintro")).grep(/\.so\z|tool/))
      .to contain_exactly("memintro.so", "libmemintro_hook.so", "memintro-tool")
    expect(File.stat(File.join(installed, "lib", "memintro", "memintro-tool")).mode & 0o7777).to eq(0o755)
    expect(Dir[File.join(installed, "**", "{target,release}")]).to eq([])
  end

  it "is made of the packaged files: each crate of memintro's own, compiled for this Ruby or known to be the same" do
    installed = Dir[File.join(@home, "gems", "memintro-*")].first
    said = File.read(Dir[File.join(@home, "extensions", "**", "gem_make.out")].first)
    crates = said.scan(/^ +(?:Compiling|Fresh) (memintro\S*) v\S+ \((.+)\)$/).to_h
    expect(crates).to eq(OWN_CRATES.transform_values { |folder| File.join(installed, folder) })
    expect(said.scan(/^ +Compiling (\S+) v\S+/).flatten).to include("memintro", "rb-sys", "magnus")
  end

  it "finds a leak in a process that runs already" do
    figures, path = in_folder("ruby", "leak.rb").stdout.lines(chomp: true)
    allocations, frees, live_bytes = figures.split.map(&:to_i)
    expect(frees).to eq(250)
    # Ruby allocates three or four times for what the line calls first.
    expect(allocations).to be_between(1_000, 1_010)
    expect(live_bytes).to be_between(750 * 1_024, (750 * 1_024) + 20_000)
    expect(path).to start_with(@home)
  end

  it "has the memintro command, which preloads the installed hook" do
    report = in_folder(File.join(@home, "bin", "memintro"), "run", "--report", "-", "--", "ruby", "-e",
                       "$kept = 'x' * 5_000_000").stderr
    expect(report).to match(/-e:1\b/)
  end

  it "says in words what is missing where there is no Rust" do
    source = Dir[File.join(@home, "gems", "memintro-*", "ext", "memintro")].first
    result = run_command(RbConfig.ruby, "extconf.rb", env: @env.merge("PATH" => @folder), chdir: source)
    expect(result.success?).to be(false)
    expect(result.stderr).to include("cargo, Rust's build tool").and include("https://rustup.rs")
  end
end
