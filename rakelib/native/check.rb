# frozen_string_literal: true

require "shellwords"
require_relative "build"
require_relative "source_trial"
require_relative "trial"

module Native
  # Builds the gem twice, in folders of other names and one after the other, compares the bytes, and tries the gem with
  # each of its Rubies.
  class Check
    # Files that must not be in the gem, because it does not need sources and debug files.
    UNWANTED = %r{\A(ext|crates|spec)/|\ACargo\.|\.debug\z|/target/}

    # @param matrix [String] folder of the matrix
    # @param checkout [String]
    # @param prefixes [Array<String>] as for {Build}
    def initialize(matrix:, checkout:, prefixes: [])
      @matrix = matrix
      @checkout = checkout
      @prefixes = prefixes
    end

    # @raise [Failed, Matrix::Failed]
    def call
      builds = %w[first another-one].map do |name|
        Build.new(matrix: @matrix, checkout: @checkout, prefixes: @prefixes, name: name).call
      end
      build = builds.first
      puts build.description
      compare(*builds)
      check_contents(build)
      check_licenses(build)
      check_documentation(build)
      try(build)
    end

    private

    def compare(one, other)
      files = [one, other].map { |build| bytes(build) }
      names = files.map(&:keys)
      raise Failed, "two builds have other files:\n#{names.map(&:inspect).join("\n")}" unless names.uniq.size == 1

      different = names.first.reject { |name| files[0][name] == files[1][name] }
      raise Failed, "two builds differ in #{different.join(', ')}" if different.any?

      puts "  two builds: the same bytes, #{names.first.size} files"
    end

    # The contents of the gem and of the debug files.
    def bytes(build)
      folder = File.dirname(build.gem)
      Dir.glob("**/*", File::FNM_DOTMATCH, base: folder).sort.select { |name| File.file?(File.join(folder, name)) }
         .to_h { |name| [name, File.binread(File.join(folder, name))] }
    end

    def check_contents(build)
      names = IO.popen("tar -xOf #{build.gem.shellescape} data.tar.gz | tar -tz", &:readlines).map(&:strip)
      compiled = names.grep(/\.so\z|-tool\z/)
      expected = build.binaries.map { |binary| binary.path[%r{lib/memintro/.*}] }
      raise Failed, "the gem has #{compiled.join(', ')}" unless compiled.sort == expected.sort

      unwanted = names.grep(UNWANTED)
      raise Failed, "the gem has #{unwanted.join(', ')}" if unwanted.any?

      puts "  #{names.size} files in the gem, #{compiled.size} of them compiled"
    end

    # The debug files name the crates that were really compiled into the parts. Each must be in the gem's list.
    def check_licenses(build)
      linked = Licenses.crates_in(build.debug_files)
      text = IO.popen("tar -xOf #{build.gem.shellescape} data.tar.gz | tar -xzO #{Licenses::FILE}", &:read)
      missing = linked.reject { |crate| text.match?(/^#{Regexp.escape(crate)}( \(in Rust[^)]*\))?: .*; text \d/) }
      raise Failed, "no crates in the debug files" if linked.empty?
      raise Failed, "#{Licenses::FILE} does not name #{missing.join(', ')}" if missing.any?

      puts "  #{Licenses::FILE}: #{text.bytesize} bytes; it names all #{linked.size} crates of the debug files"
    end

    # docs/install.md must name the glibc version that the symbols need.
    def check_documentation(build)
      said = File.read(File.join(@checkout, "docs/install.md"))[/glibc (\d+\.\d+) or later/, 1]
      raise Failed, "docs/install.md says glibc #{said}, and it is #{build.glibc}" unless said == build.glibc.to_s

      puts "  docs/install.md says glibc #{said}, as the symbols do"
    end

    def try(build)
      rubies = TargetRubies.new(@matrix, prefixes: @prefixes)
      rubies.entries.each do |entry|
        Trial.new(entry, matrix: @matrix, checkout: @checkout, rubies: rubies, gem: build.gem).call
      end
      rubies.installed.each { |ruby| try_installed(ruby, build) }
      SourceTrial.new(matrix: @matrix, checkout: @checkout, rubies: rubies, gem: build.gem).call
    end

    # A Ruby of this machine, which may have a compiler: the gem is installed and its doctor asked, without one on PATH.
    def try_installed(ruby, build)
      log = File.join(@matrix, "native", "trial-#{ruby.version}.log")
      home = File.join(@matrix, "native", "trial-#{ruby.version}")
      FileUtils.rm_rf([log, home])
      env = { "GEM_HOME" => home, "PATH" => "#{ruby.prefix}/bin:/bin" }
      commands = [["gem", "install", "--local", "--no-document", build.gem], ["#{home}/bin/memintro", "doctor"]]
      failed = commands.find { |command| !ruby.run(*command, env: env, out: log).success? }
      raise Failed, "#{failed.join(' ')} failed with #{ruby.prefix}; see #{log}" if failed

      puts "  #{ruby.version}: #{ruby.description}, on this machine: " \
           "#{File.readlines(log, chomp: true).last(2).join('; ')}"
    end
  end
end
