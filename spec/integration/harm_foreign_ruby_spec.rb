# frozen_string_literal: true

require "tmpdir"
require_relative "../spec_helper"

# An extension that was compiled for another Ruby. Here it is this Ruby's own with another note, so it would load if
# memintro did not read the note; spec/matrix/foreign_ruby_spec.rb has a Ruby that it would crash.
RSpec.describe "A memintro that was compiled for another Ruby" do
  before(:context) do
    @folder = Dir.mktmpdir
    FileUtils.cp_r([Subprocess::LIB, File.dirname(Subprocess::EXE)], @folder)
    @extension = File.join(@folder, "lib/memintro/memintro.so")
    bytes = File.binread(@extension)
    minor = RUBY_VERSION[/\A\d+\.\d+/]
    bytes.sub!(/Ruby #{RUBY_VERSION} ABI #{minor}/n) { |note| note.gsub(/\d/, "9") } or raise "no note"
    File.binwrite(@extension, bytes)
  end

  after(:context) { FileUtils.rm_rf(@folder) }

  let(:reason) do
    "memintro's extension does not load in Ruby #{RUBY_VERSION}: #{@extension} was compiled for Ruby " \
      "#{RUBY_VERSION.gsub(/\d/, '9')}. There is no build for Ruby #{RUBY_VERSION}: install the gem with this Ruby, " \
      "or run rake compile with it in the checkout."
  end

  def command(*words, **options)
    run_command(RbConfig.ruby, File.join(@folder, "exe/memintro"), *words, **options)
  end

  it "says which build is missing, and is not loaded, where the program requires it" do
    result = run_command(RbConfig.ruby, "-I#{@folder}/lib", "-e", <<~'RUBY')
      begin
        require "memintro"
      rescue LoadError => e
        puts e.message
      end
      print File.read("/proc/self/maps").include?("/memintro.so")
    RUBY
    expect(result.must_succeed.stdout).to eq("#{reason}\nfalse")
  end

  {
    "run" => "not tracking", "account" => "not looking at", "leaks" => "not looking at", "diff" => "not looking at",
    "snapshot" => "not looking at"
  }.each do |name, what|
    it "lets a program run as it would, with one line on standard error: memintro #{name}" do
      code = "print $$, File.read('/proc/self/maps').include?('/memintro.so'); exit 3"
      result = command(name, "--", RbConfig.ruby, "-w", "-e", code)
      expect(result.status.exitstatus).to eq(3)
      pid = result.stdout[/\A(\d+)false\z/, 1]
      expect(result.stderr).to eq("memintro: #{what} process #{pid}: #{reason}\n")
    end
  end

  it "lets the hook leave such a program alone, and does not where the Ruby is one of several" do
    code = "print File.read('/proc/self/status')[/VmSize:\\s+(\\d+)/, 1]"
    size = ->(env) { run_command(RbConfig.ruby, "-e", code, env: env).must_succeed.stdout.to_i >> 10 }
    idle = size.call(preloaded_env(mode: "off"))
    sizes = [nil, "9.9", "9.9,#{RUBY_VERSION[/\A\d+\.\d+/]}", "x,,.", ""].map do |rubies|
      size.call(preloaded_env.merge("MEMINTRO_RUBIES" => rubies)) - idle
    end
    # In MiB of address space: what tracking reserves.
    expect(sizes.values_at(0, 2, 4)).to all(be > 20)
    expect(sizes.values_at(1, 3)).to all(be < 10)
  end

  it "leaves a memintro of the program's own alone, whichever comes first", :aggregate_failures do
    code = "require 'memintro'; Memintro.start; x = 'a' * 70_001; print Memintro['-e:1'].live_bytes > 70_000"
    [["-I#{Subprocess::LIB}", "-e", code], ["-I#{Subprocess::LIB}", "-rmemintro", "-e", code]].each do |words|
      result = command("run", "--", RbConfig.ruby, "-w", *words).must_succeed
      expect(result.stdout).to eq("true")
      # A program that has loaded its own before is tracked by that.
      expect(result.stderr.lines.first).to match(words.include?("-rmemintro") ? /\Amemintro .*: pid / : /not tracking/)
      expect(result.stderr).not_to include("warning")
    end
  end

  it "does not keep the extension of this Ruby from being found that RubyGems keeps apart" do
    gems = File.join(@folder, "gems/memintro-9.8.7")
    FileUtils.mkdir_p(gems)
    FileUtils.cp_r(File.join(@folder, "lib"), gems)
    apart = File.join(@folder, "extensions/any", RbConfig::CONFIG["ruby_version"], "memintro-9.8.7/memintro")
    FileUtils.mkdir_p(apart)
    FileUtils.cp(File.join(Subprocess::LIB, "memintro/memintro.so"), apart)
    result = run_command(RbConfig.ruby, "-I#{gems}/lib", "-rmemintro", "-e", "print Memintro::Paths.extension")
    expect(result.must_succeed.stdout).to eq("#{apart}/memintro.so")
  end
end
