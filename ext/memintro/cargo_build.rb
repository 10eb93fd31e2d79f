# frozen_string_literal: true

# How memintro's compiled parts are built: the Ruby extension (memintro.so), the malloc hook, which knows nothing of
# Ruby (libmemintro_hook.so), and the program that draws (memintro-tool). One `cargo build` makes them all.
#
# `gem install` comes here through extconf.rb, a checkout through `rake compile`; neither says anything about
# cargo itself, so the two cannot drift apart. Only Ruby's standard library is used: nothing else is there
# while a gem is being installed.

require "fileutils"
require "rbconfig"

# Knows the command, its environment, and where its products are.
class CargoBuild
  # Its message is for whoever installs: what went wrong and what to do.
  class Failed < StandardError; end

  # Crate => what cargo calls its product, and what memintro looks for beside its own Ruby files.
  PARTS = { "memintro" => %w[libmemintro.so memintro.so],
            "memintro-hook" => %w[libmemintro_hook.so libmemintro_hook.so],
            "memintro-tool" => %w[memintro-tool memintro-tool] }.freeze
  LIBCLANG_FOLDERS = "/usr/lib/llvm-*/lib"
  # Older ones cannot read the headers of Ruby 3.4.
  OLDEST_LIBCLANG = 15
  # With musl Rust makes static programs unless it is told not to, and then makes no library for Ruby to load at all.
  SHARED_MUSL = "-Ctarget-feature=-crt-static"

  attr_reader :root

  # @param root [String] folder that holds Cargo.toml and Cargo.lock
  # @param crates [Array<String>] those of PARTS that are built
  def initialize(root: File.expand_path("../..", __dir__), crates: PARTS.keys)
    @root = root
    @crates = crates
  end

  # @return [Boolean] false where these files came in a gem, which ships no specs
  def checkout?
    File.directory?(File.join(root, "spec"))
  end

  # One folder for each Ruby, for bindings made from one Ruby's headers do not fit another.
  #
  # @return [String]
  def target_folder
    base = ENV.fetch("CARGO_TARGET_DIR") { File.join(root, "target") }
    File.join(File.expand_path(base, root), "memintro-#{RbConfig::CONFIG['ruby_version']}-#{RbConfig::CONFIG['arch']}")
  end

  # @return [Array<String>] `cargo build`, whole; the lock file decides every version
  def command
    ["cargo", "build", "--locked", "--release", "--manifest-path", File.join(root, "Cargo.toml"),
     "--target-dir", target_folder] + @crates.flat_map { |name| ["--package", name] }
  end

  # @return [Hash{String => String}] what the build needs beside the caller's environment
  def environment
    found = { "RUBY" => RbConfig.ruby }
    found["LIBCLANG_PATH"] = libclang_folder if !ENV.key?("LIBCLANG_PATH") && libclang_folder
    found["RUSTFLAGS"] =
      [ENV["RUSTFLAGS"], SHARED_MUSL].compact.join(" ") if RbConfig::CONFIG["host_os"].include?("musl")
    found
  end

  # @return [Hash{String => String}] path of what was built => name under which it is installed. Cargo has a folder for
  #   a target that it was told, be it this machine's own.
  def products
    folder = File.join(target_folder, *ENV["CARGO_BUILD_TARGET"], "release")
    PARTS.values_at(*@crates).to_h { |file, name| [File.join(folder, file), name] }
  end

  # Builds, unless nothing changed since, and puts the products into the folder.
  #
  # @raise [Failed] if this machine cannot build, or cargo fails
  # @return [void]
  def run(into:)
    check_tools
    system(environment, *command) || raise(Failed, "cargo build failed: its own messages above say why")
    FileUtils.mkdir_p(into)
    products.each { |source, name| replace(File.join(into, name), source) }
  end

  # @raise [Failed] naming what is not there and how to get it
  # @return [void]
  def check_tools
    missing = [cargo_missing, compiler_missing, headers_missing, libclang_missing].compact
    return if missing.empty?

    raise Failed, "memintro is compiled on this machine, which lacks:\n#{missing.map { |m| "  - #{m}\n" }.join}"
  end

  private

  # A process that runs right now may have the old file mapped: it keeps that one, for the name moves and the
  # bytes stay.
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

  # The newest wins. Where LLVM lives elsewhere, whoever installed it sets LIBCLANG_PATH or llvm-config.
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
