# frozen_string_literal: true

require "fileutils"
require_relative "build"

module Native
  # What docs/install.md advises for a Ruby that the precompiled gem does not fit: that gem is uninstalled, the source
  # gem is installed by `--platform ruby` and tried. There is no network: both gems are in one folder, and the crates
  # are those that cargo has fetched outside. It runs in the root that compiles the precompiled gem.
  class SourceTrial
    INSIDE = "/opt/native/source-trial"
    GEM_HOME = "#{INSIDE}/home".freeze

    # @param matrix [String] folder of the matrix
    # @param checkout [String]
    # @param rubies [TargetRubies]
    # @param gem [String] path of the precompiled gem
    def initialize(matrix:, checkout:, rubies:, gem:)
      @folder = File.join(matrix, "native", "source-trial")
      @checkout = checkout
      @rubies = rubies
      @gem = gem
    end

    # Prints the result.
    #
    # @raise [Failed, Matrix::Failed]
    def call
      lay_out
      program = @rubies.program(@rubies.entries.first).sub("ruby", "gem")
      run(program, "install", "--local", "--no-document", "#{INSIDE}/precompiled.gem")
      expect_installed("memintro-#{Memintro::VERSION}-*")
      run(program, "uninstall", "memintro")
      expect_installed
      run(program, "install", "--local", "--no-document", "--platform", "ruby", "memintro")
      expect_installed("memintro-#{Memintro::VERSION}")
      run("#{GEM_HOME}/bin/memintro", "doctor")
      puts "  source gem: installed by --platform ruby in the precompiled gem's place; its doctor finds nothing wrong"
    end

    private

    def lay_out
      FileUtils.rm_rf(@folder)
      FileUtils.mkdir_p(@folder)
      # Old releases of RubyGems, which leave the "gnu" out, do not find the gem by its own name.
      FileUtils.cp(@gem, File.join(@folder, "precompiled.gem"))
      source = File.join(@folder, "memintro-#{Memintro::VERSION}.gem")
      command = ["gem", "build", "--quiet", "--output", source, "memintro.gemspec"]
      raise Failed, "the source gem cannot be built" unless system(*command, chdir: @checkout, out: File::NULL)
    end

    # @param names [Array<String>] patterns of all that must be installed
    def expect_installed(*names)
      found = Dir.children(File.join(@folder, "home", "gems"))
      return if found.size == names.size && names.all? { |name| found.any? { |one| File.fnmatch(name, one) } }

      raise Failed, "installed is #{found.inspect}, not #{names.inspect}"
    end

    def run(*command)
      log = File.join(@folder, "run.log")
      env = { "GEM_HOME" => GEM_HOME, "CARGO_NET_OFFLINE" => "true" }
      return if @rubies.root.run(*command, env: env, binds: { @folder => INSIDE }, chdir: INSIDE, out: log).success?

      raise Failed, "#{command.join(' ')} failed; #{log} ends:\n#{File.readlines(log).last(10).join}"
    end
  end
end
