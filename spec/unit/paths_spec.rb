# frozen_string_literal: true

require_relative "../spec_helper"
require "memintro/support/paths"

RSpec.describe Memintro::Paths do
  around do |example|
    Dir.mktmpdir do |folder|
      @gems = folder
      example.run
    end
  end

  before do
    stub_const("Memintro::Paths::LIB", File.join(@gems, "gems", "memintro-9.8.7", "lib"))
    stub_const("Memintro::Paths::CODE", File.join(described_class::LIB, "memintro"))
    FileUtils.mkdir_p(described_class::CODE)
  end

  # Makes an empty file below the folder of the code, or below the folder of gems.
  def make(name, below: described_class::CODE)
    file = File.join(below, name)
    FileUtils.mkdir_p(File.dirname(file))
    FileUtils.touch(file)
    file
  end

  def make_apart
    make("extensions/linux/#{RbConfig::CONFIG['ruby_version']}/memintro-9.8.7/memintro/memintro.so", below: @gems)
  end

  describe ".extension" do
    it "is the one for this Ruby, then the one beside, then RubyGems' own" do
      stub_const("RUBY_VERSION", "3.10.4")
      beside = File.join(described_class::CODE, "memintro.so")
      make("3.1/memintro.so")
      found = [described_class.extension]
      [-> { make_apart }, -> { make("memintro.so") }, -> { make("3.10/memintro.so") }].each do |step|
        step.call
        found << described_class.extension
      end
      expect(found).to eq([beside, Dir["#{@gems}/extensions/**/memintro.so"].first, beside,
                           File.join(described_class::CODE, "3.10/memintro.so")])
    end
  end

  describe ".hook and .tool" do
    it "are beside the code, with any files for this Ruby" do
      version = RUBY_VERSION[/\A\d+\.\d+/]
      %w[libmemintro_hook.so memintro-tool].each { |name| make("#{version}/#{name}") }
      expect([described_class.hook, described_class.tool])
        .to eq(%w[libmemintro_hook.so memintro-tool].map { |name| File.join(described_class::CODE, name) })
    end
  end

  describe ".precompiled" do
    it "names each Ruby that has an extension of its own, in order" do
      expect(described_class.precompiled).to eq([])
      %w[3.10/memintro.so 3.4/memintro.so memintro.so cli/memintro.so 3.5/another.so].each { |name| make(name) }
      expect(described_class.precompiled).to eq(%w[3.4 3.10])
    end
  end
end

# A copy of the code whose extensions do not load, as in a Ruby that the gem was not compiled for.
RSpec.describe "Loading the extension" do
  around do |example|
    Dir.mktmpdir do |folder|
      FileUtils.cp_r(Subprocess::LIB, folder)
      @lib = File.join(folder, "lib")
      FileUtils.mv(File.join(@lib, "memintro/memintro.so"), File.join(folder, "memintro.so"))
      @extension = File.join(folder, "memintro.so")
      example.run
    end
  end

  def loading(code = "print Memintro::Paths.extension")
    run_command(RbConfig.ruby, "-I#{@lib}", "-rmemintro", "-e", code)
  end

  def install(version)
    FileUtils.mkdir_p(File.join(@lib, "memintro", version))
    FileUtils.cp(@extension, File.join(@lib, "memintro", version, "memintro.so"))
  end

  it "takes the one for this Ruby, which finds the hook a folder above" do
    version = RUBY_VERSION[/\A\d+\.\d+/]
    install(version)
    code = "Memintro.start; print Memintro::Paths.extension, ' ', Memintro.doctor.hook"
    expect(loading(code).must_succeed.stdout)
      .to eq("#{@lib}/memintro/#{version}/memintro.so #{@lib}/memintro/libmemintro_hook.so")
  end

  it "says which Rubies the gem was compiled for, and what to do for another one" do
    %w[2.9 99.1].each { |version| install(version) }
    result = loading
    expect(result.success?).to be(false)
    expect(result.stderr).to include("does not load in Ruby #{RUBY_VERSION}", "compiled for Ruby 2.9, 99.1, with glibc",
                                     "`gem install memintro --platform ruby`")
    expect(result.stderr).not_to include("pristine")
  end

  it "says how to compile it where the gem is not a precompiled one" do
    expect(loading.stderr).to include("does not load in Ruby #{RUBY_VERSION}", "`gem pristine memintro`")
  end
end
