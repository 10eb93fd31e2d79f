# frozen_string_literal: true

# Builds memintro's compiled parts with one `cargo build`: the Ruby extension (memintro.so), the malloc hook
# (libmemintro_hook.so), and the program that draws plots (memintro-tool).
#
# Both `gem install` (through extconf.rb) and `rake compile` use this file, so that they build alike. It uses only
# Ruby's standard library, because nothing else is there while a gem is installed.

require "fileutils"
require "rbconfig"

# The cargo command, its environment, and the files that it makes.
class CargoBuild
  # The message says what went wrong and what to do.
  class Failed < StandardError; end

  # By crate: the name of the file that cargo makes, and the name under which memintro looks for it.
  PARTS = { "memintro" => %w[libmemintro.so memintro.so],
            "memintro-hook" => %w[libmemintro_hook.so libmemintro_hook.so],
            "memintro-tool" => %w[memintro-tool memintro-tool] }.freeze
  LIBCLANG_FOLDERS = "/usr/lib/llvm-*/lib"
  # Older versions cannot read the headers of Ruby 3.4.
  OLDEST_LIBCLANG = 15
  # On musl, Rust links statically by default, and then it cannot make a library that Ruby loads.
  SHARED_MUSL = "-Ctarget-feature=-crt-static"

  attr_reader :root

  # @param root [String] folder that holds Cargo.toml and Cargo.lock
  # @param crates [Array<String>] those of PARTS that are built
  # @param profile [String] of Cargo.toml
  def initialize(root: File.expand_path("../..", __dir__), crates: PARTS.keys, profile: "release")
    @root = root
    @crates = crates
    @profile = profile
  end

  # @return [Boolean] whether this is a checkout: gems contain no specs
  def checkout?
    File.directory?(File.join(root, "spec"))
  end

  # Each Ruby has its own folder, because bindings that were made from its headers fit no other Ruby.
  #
  # @return [String]
  def target_folder
    base = ENV.fetch("CARGO_TARGET_DIR") { File.join(root, "target") }
    File.join(File.expand_path(base, root), "memintro-#{RbConfig::CONFIG['ruby_version']}-#{RbConfig::CONFIG['arch']}")
  end

  # @return [Array<String>] the command `cargo build`, with the versions of the lock file
  def command
    ["cargo", "build", "--locked", "--profile", @profile, "--manifest-path", File.join(root, "Cargo.toml"),
     "--target-dir", target_folder] + @crates.flat_map { |name| ["--package", name] }
  end

  # @return [Hash{String => String}] variables that the build needs in addition to the caller's
  def environment
    found = { "RUBY" => RbConfig.ruby }
    found["LIBCLANG_PATH"] = libclang_folder if !ENV.key?("LIBCLANG_PATH") && libclang_folder
    found["RUSTFLAGS"] =
      [ENV["RUSTFLAGS"], SHARED_MUSL].compact.join(" ") if RbConfig::CONFIG["host_os"].include?("musl")
    found
  end

  # Where CARGO_BUILD_TARGET is set, cargo builds into a folder of that name, even for this machine's own target.
  #
  # @return [Hash{String => String}] by the path of each file that was built: the name under which it is installed
  def products
    folder = File.join(target_folder, *ENV["CARGO_BUILD_TARGET"], @profile)
    PARTS.values_at(*@crates).to_h { |file, name| [File.join(folder, file), name] }
  end

  # Builds what has changed, and puts the files into the folder.
  #
  # @param into [String] the folder; it is made if it does not exist
  # @raise [Failed] if this machine cannot build, or cargo fails
  # @return [void]
  def run(into:)
    check_tools
    system(environment, *command) || raise(Failed, "cargo build failed: its own messages above say why")
    FileUtils.mkdir_p(into)
    products.each { |source, name| replace(File.join(into, name), source) }
  end

  # @raise [Failed] with a list of what is missing and how to install it
  # @return [void]
  def check_tools
    missing = [cargo_missing, compiler_missing, headers_missing, libclang_missing].compact
    return if missing.empty?

    raise Failed, "memintro is compiled on this machine, which lacks:\n#{missing.map { |m| "  - #{m}\n" }.join}"
  end

  private

  # A running process may have the old file mapped, and would crash if its bytes changed. So a new file takes its name,
  # and the old bytes stay.
  def replace(target, source)
    return if File.exist?(target) && FileUtils.identical?(source, target)

    beside = "#{target}.#{Process.pid}"
    FileUtils.cp(source, beside)
    FileUtils.chmod(0o755, beside)
    File.rename(beside, target)
  end

  def cargo_missing
    "cargo, Rust's build tool: install Rust 1.88 or later, from https://rustup.rs" unless executable?("cargo")
  end

  def compiler_missing
    "a C compiler, for linking: apt-get install build-essential" unless executable?("cc")
  end

  def headers_missing
    return if File.exist?(File.join(RbConfig::CONFIG["rubyhdrdir"].to_s, "ruby.h"))

    "the headers of Ruby #{RUBY_VERSION}: apt-get install ruby-dev"
  end

  def libclang_missing
    return if ENV.key?("LIBCLANG_PATH") || libclang_folder

    "libclang #{OLDEST_LIBCLANG} or later, which reads Ruby's headers: apt-get install libclang1-19 " \
      "libclang-common-19-dev, or set LIBCLANG_PATH to the folder that holds it"
  end

  # The newest of several versions. For an LLVM in another place, LIBCLANG_PATH has to be set.
  def libclang_folder
    @libclang_folder ||= Dir.glob(LIBCLANG_FOLDERS)
                            .select { |folder| Dir.glob(File.join(folder, "libclang{,-[0-9]*}.so*")).any? }
                            .select { |folder| folder[/llvm-(\d+)/, 1].to_i >= OLDEST_LIBCLANG }
                            .max_by { |folder| folder[/llvm-(\d+)/, 1].to_i }
  end

  def executable?(name)
    ENV.fetch("PATH", "").split(File::PATH_SEPARATOR).any? { |folder| File.executable?(File.join(folder, name)) }
  end
end
