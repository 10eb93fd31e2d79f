# frozen_string_literal: true

require "digest"
require "fileutils"
require_relative "subprocess"

# Builds the C and C++ fixtures of spec/fixtures on demand. A build is kept under tmp/ by the hash of its
# sources and flags, so a second run of the specs compiles nothing.
module NativePrograms
  PROGRAMS = File.join(Subprocess::ROOT, "spec", "fixtures", "programs")
  CONTRACT = File.join(Subprocess::ROOT, "crates", "abi", "include")
  MODULES = File.join(Subprocess::ROOT, "spec", "fixtures", "modules")
  CACHE = ENV.fetch("MEMINTRO_SPEC_CACHE", File.join(Subprocess::ROOT, "tmp", "spec-programs"))
  WARNINGS = %w[-Wall -Wextra -Wno-unused-result -Wno-alloc-size-larger-than -Wno-use-after-free].freeze

  module_function

  # Path of an executable from spec/fixtures/programs. variant: :lazy (as Debian links), :now, :no_plt, :no_pie.
  # libraries: paths of those it is linked with.
  def program(name, variant: :lazy, libraries: [])
    build(File.join(PROGRAMS, name), "#{File.basename(name, ".*")}-#{variant}",
          [*link_flags(variant), "-rdynamic", *libraries, "-ldl"])
  end

  # Path of a shared object from spec/fixtures/modules, bound lazily unless `variant: :now` is given.
  def shared_module(name, variant: :lazy, flags: [], suffix: variant)
    flags = ["-shared", "-fPIC", *link_flags(variant), *flags]
    build(File.join(MODULES, name), "lib#{File.basename(name, ".*")}-#{suffix}.so", flags)
  end

  # Path of an extension for this Ruby from spec/fixtures/modules, which `require` takes. libraries: paths of those that
  # it is linked with.
  def extension(name, libraries: [], flags: [])
    headers = RbConfig::CONFIG.values_at("rubyhdrdir", "rubyarchhdrdir").map { |folder| "-I#{folder}" }
    build(File.join(MODULES, name), "#{File.basename(name, ".*")}.so",
          ["-shared", "-fPIC", "-Wno-unused-parameter", *headers, *flags, *libraries])
  end

  # Path of jemalloc's library, or nil where it is not installed.
  def jemalloc = Dir["/usr/lib/*-linux-gnu/libjemalloc.so.2"].first

  # Path of tcmalloc's library, or nil where it is not installed.
  def tcmalloc = Dir["/usr/lib/*-linux-gnu/libtcmalloc_minimal.so.4"].first

  def link_flags(variant)
    { lazy: ["-Wl,-z,lazy"], now: ["-Wl,-z,relro,-z,now"], no_plt: ["-fno-plt", "-Wl,-z,now"],
      no_pie: ["-no-pie", "-fno-pie", "-Wl,-z,lazy"] }.fetch(variant)
  end

  # Compiles one source into a file of this name, unless the cache has it already.
  def build(source, output_name, flags)
    compiler = source.end_with?(".cc") ? ["g++", "-std=c++17"] : ["gcc", "-std=gnu11"]
    command = [*compiler, "-O1", "-g", "-fno-builtin", "-fno-optimize-sibling-calls", *WARNINGS]
    headers = Dir[File.join(PROGRAMS, "*.h"), File.join(CONTRACT, "*.h")].sort
    inputs = [source, *headers, *flags.select { |flag| File.file?(flag) }]
    digest = Digest::SHA256.hexdigest([*command, *flags, *inputs.map { |file| File.binread(file) }].join("\0"))
    target = File.join(CACHE, digest[0, 16], output_name)
    return target if File.exist?(target)

    FileUtils.mkdir_p(File.dirname(target))
    private_target = "#{target}.#{Process.pid}"
    output, status = Open3.capture2e(*command, "-I#{PROGRAMS}", "-I#{CONTRACT}", "-pthread", "-o", private_target,
                                     source, *flags)
    raise "#{File.basename(source)} does not compile:\n#{output}" unless status.success?

    File.rename(private_target, target)
    target
  end
end

RSpec.configure { |config| config.include NativePrograms } if defined?(RSpec)
