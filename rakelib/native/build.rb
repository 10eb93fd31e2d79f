# frozen_string_literal: true

require "fileutils"
require "open3"
require_relative "binaries"
require_relative "licenses"
require_relative "target_rubies"
require_relative "../../lib/memintro/version"

module Native
  PLATFORM = "x86_64-linux-gnu"
  # File name of the gem, and what the debug files' folder is called beside it.
  GEM = "memintro-#{Memintro::VERSION}-#{PLATFORM}.gem".freeze
  DEBUG = "memintro-#{Memintro::VERSION}-#{PLATFORM}.debug".freeze

  # Why the gem cannot be made on this machine, or nil.
  def self.impossible
    cpu = RbConfig::CONFIG["host_cpu"]
    return "the gem is for x86-64, and this machine is #{cpu}" unless cpu == "x86_64"

    Matrix::DebianRoot.impossible
  end

  # Makes the precompiled gem and its debug files. The same files give the same bytes, wherever and whenever: paths are
  # mapped to /memintro, /target and /crates, dates are those of the last commit, and build ids follow from the rest.
  class Build
    INSIDE = "/opt/native"
    # The prefixes of a build's paths in panics and in debug files.
    CHECKOUT = "/memintro"
    TARGET = "/target"
    CRATES = "/crates"
    # The hook and the tool are built once, by the oldest Ruby's build.
    ONCE = %w[memintro-hook memintro-tool].freeze
    EXTENSION = "memintro"

    # @param matrix [String] folder of the matrix
    # @param checkout [String]
    # @param name [String] of the folder in which it is built, below the matrix's
    # @param prefixes [Array<String>] of installed Rubies for which it is compiled as well
    def initialize(matrix:, checkout:, prefixes: [], name: "build")
      @checkout = checkout
      @name = name
      @folder = File.join(matrix, "native", name)
      @rubies = TargetRubies.new(matrix, prefixes: prefixes)
    end

    # @return [String] path of the gem
    def gem = File.join(@folder, "pkg", GEM)

    # @return [String] folder that gdb knows as a `debug-file-directory`
    def debug = File.join(@folder, "pkg", DEBUG)

    # @return [Array<Binary>] the stripped parts
    def binaries
      Dir[File.join(staged, "lib/memintro/{,[0-9]*/}{*.so,memintro-tool}")].sort.map { |file| Binary.new(file) }
    end

    # @return [Array<String>] the debug files of the parts
    def debug_files = Dir[File.join(debug, ".build-id/*/*.debug")].sort

    # The oldest glibc that all parts run with.
    #
    # @return [Gem::Version]
    def glibc = binaries.map(&:glibc).max

    # @return [self]
    # @raise [Matrix::Failed, Failed]
    def call
      reason = Native.impossible
      raise Failed, reason if reason

      @rubies.prepare
      stage
      fetch_crates
      File.write(File.join(staged, Licenses::FILE), Licenses.new(staged).text)
      @rubies.all.each { |ruby| compile(ruby) }
      split_debug_files
      check
      pack
      self
    end

    # @return [Array<String>] lines for people: what there is, how large, and what it needs
    def description
      parts = binaries.map do |binary|
        format("  %-32s %8d bytes, glibc %-5s build id %s", binary.path.delete_prefix("#{staged}/"),
               File.size(binary.path), binary.glibc, binary.build_id)
      end
      ["#{GEM}: #{File.size(gem)} bytes", *parts, "  needs glibc #{glibc} or later, and one of Ruby " \
                                                  "#{@rubies.versions.join(', ')}"]
    end

    private

    def staged = File.join(@folder, "gem")

    def inside(*names) = File.join(INSIDE, @name, *names)

    # Copies the files of the source gem. Only these are built and packed.
    def stage
      FileUtils.rm_rf(@folder)
      names = Dir.chdir(@checkout) { Gem::Specification.load("memintro.gemspec").files } + ["memintro.gemspec"]
      names.each do |name|
        FileUtils.mkdir_p(File.dirname(File.join(staged, name)))
        FileUtils.cp(File.join(@checkout, name), File.join(staged, name))
      end
      FileUtils.mkdir_p([File.join(@folder, "pkg"), File.join(@folder, "target")])
      FileUtils.cp(File.join(__dir__, "package.rb"), @folder)
    end

    # Runs on the machine outside, which can fetch crates; the build inside needs no network.
    def fetch_crates
      command = ["cargo", "fetch", "--locked", "--quiet", "--manifest-path", File.join(staged, "Cargo.toml")]
      raise Failed, "cargo could not fetch the crates" unless system(*command)
    end

    def compile(ruby)
      crates = [EXTENSION] + (ruby == @rubies.all.first ? ONCE : [])
      script = "CargoBuild.new(crates: ARGV.drop(1)).run(into: ARGV.first)"
      run!(@rubies.root, @rubies.program(ruby), "--disable-gems", "-r./ext/memintro/cargo_build", "-e", script,
           inside("gem/lib/memintro"), *crates, env: environment, binds: @rubies.binds, chdir: inside("gem"))
      compiled = File.join(staged, "lib/memintro")
      FileUtils.mkdir_p(File.join(compiled, @rubies.version(ruby)))
      FileUtils.mv(File.join(compiled, "memintro.so"), File.join(compiled, @rubies.version(ruby)))
    end

    def environment
      maps = { inside("gem") => CHECKOUT, inside("target") => TARGET }
      registries.each { |folder| maps[folder] = CRATES }
      { "RUSTFLAGS" => maps.map { |from, to| "--remap-path-prefix=#{from}=#{to}" }.join(" "),
        "CC" => ["cc", *maps.map { |from, to| "-ffile-prefix-map=#{from}=#{to}" }].join(" "),
        "CARGO_TARGET_DIR" => inside("target"), "CARGO_NET_OFFLINE" => "true", "SOURCE_DATE_EPOCH" => epoch }
    end

    # Folders inside in which cargo keeps crates. Their names show where the crates were fetched from.
    def registries
      home = ENV.fetch("CARGO_HOME") { File.expand_path("~/.cargo") }
      Dir.glob("registry/src/*", base: home).sort.map { |folder| File.join(Matrix::DebianRoot::CARGO_HOME, folder) }
    end

    # @return [String] of the last commit, unless the environment says otherwise
    def epoch
      @epoch ||= ENV.fetch("SOURCE_DATE_EPOCH") do
        Open3.capture2("git", "log", "-1", "--format=%ct", chdir: @checkout).first.strip
      end
    end

    # gdb finds them by the build id that both halves keep.
    SPLIT = <<~'SHELL'
      debug=$1; shift
      for file; do
        id=$(readelf --notes "$file" | sed -n 's/.*Build ID: //p')
        folder=$debug/.build-id/$(echo "$id" | cut -c1-2)
        mkdir -p "$folder"
        name=$folder/$(echo "$id" | cut -c3-).debug
        objcopy --only-keep-debug "$file" "$name"
        chmod 644 "$name"
        strip --strip-all "$file"
      done
    SHELL
    private_constant :SPLIT

    def split_debug_files
      files = binaries.map { |binary| inside(binary.path.delete_prefix("#{@folder}/")) }
      run!(@rubies.root, "sh", "-ec", SPLIT, "sh", inside("pkg", DEBUG), *files)
    end

    # Checks properties that users of the gem would otherwise find missing.
    def check
      words = [INSIDE, Matrix::DebianRoot::CARGO_HOME, @checkout, *registries.map { |folder| File.basename(folder) }]
      wrong = binaries.flat_map { |binary| problems(binary, words) }
      wrong << "#{binaries.size} parts were built" unless binaries.size == @rubies.all.size + ONCE.size
      raise Failed, wrong.join("\n") if wrong.any?
    end

    def problems(binary, words)
      debug_file = File.join(debug, ".build-id", binary.build_id[0, 2], "#{binary.build_id[2..]}.debug")
      problems = binary.foreign_libraries.map { |library| "#{binary.name} needs #{library}" }
      problems += (binary.traces_of(words) + Binary.new(debug_file).traces_of(words))
                  .map { |word| "#{binary.name} has #{word} in it" }
      problems << "#{binary.name} is not stripped" unless binary.stripped?
      problems << "#{debug_file} tells no lines" unless Binary.new(debug_file).lines?
      problems
    end

    def pack
      entry = @rubies.entries.find { |candidate| candidate.suite.nil? && candidate.debian != @rubies.root.release }
      run!(@rubies.root_of(entry), entry.program, inside("package.rb"), inside("gem"), PLATFORM, glibc.to_s,
           inside("pkg", GEM), env: { "SOURCE_DATE_EPOCH" => epoch })
    end

    def run!(root, *command, env: {}, binds: {}, chdir: "/")
      root.run!(*command, env: env, binds: { @folder => inside, **binds }, chdir: chdir,
                          out: File.join(@folder, "build.log"))
    end
  end
end
