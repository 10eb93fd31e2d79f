# frozen_string_literal: true

require "fileutils"
require "rbconfig"
require "shellwords"
require "tmpdir"
require_relative "../ext/memintro/cargo_build"

module Bench
  # Brings the machine to the point where every column can run, and says what it does.
  #
  # The libraries are copied before the first run: a build made while the benchmark runs cannot change the subject.
  class Setup
    ROOT = File.expand_path("..", __dir__)

    attr_reader :scratch

    def initialize(install: true)
      @install = install
      @scratch = Dir.mktmpdir("memintro-bench")
      at_exit { FileUtils.rm_rf(@scratch) }
    end

    def lib
      File.join(scratch, "lib")
    end

    def exe
      File.join(scratch, "exe", "memintro")
    end

    def hook
      File.join(lib, "memintro", "libmemintro_hook.so")
    end

    # What `memintro env` prints. The launcher `memintro run` sets the same, but is a Ruby of its own, whose start
    # would be part of the figures.
    def preload_environment(*flags)
      @preload_environment ||= {}
      @preload_environment[flags] ||= begin
        command = [RbConfig.ruby, "-I#{lib}", exe, "env", *flags, "--report", File.join(scratch, "report")]
        Shellwords.split(IO.popen(command, &:read)).to_h { |assignment| assignment.split("=", 2) }
      end
    end

    def prepare(workloads, columns)
      install_packages([*workloads.map(&:package), *columns.map(&:needs)].grep(String).flat_map(&:split).uniq)
      return unless columns.any? { |column| column.needs == :memintro }

      build
      FileUtils.cp_r([File.join(ROOT, "lib"), File.join(ROOT, "exe")], scratch)
    end

    # nil when all is there, else what is missing
    def missing(need)
      case need
      when :memintro then "memintro is not built" unless [hook, exe].all? { |path| File.exist?(path) }
      when String then need.split.find { |name| !installed?(name) }&.then { |name| "package #{name} is not installed" }
      end
    end

    private

    def install_packages(names)
      absent = names.reject { |name| installed?(name) }
      return if absent.empty? || !@install

      command = ["apt-get", "install", "-y", "-qq", *absent]
      command.unshift("sudo") unless Process.uid.zero?
      announce("installing #{absent.join(" ")}")
      system(*command, out: File::NULL) || announce("apt-get failed: the columns that need these packages are left out")
    end

    def installed?(package)
      @installed ||= {}
      @installed.fetch(package) do
        status = IO.popen(["dpkg-query", "-W", "-f=${Status}", package], err: File::NULL, &:read)
        # An absent package may be installed a moment later; only presence is remembered.
        status.end_with?(" installed") && (@installed[package] = true)
      end
    end

    # Cargo knows by itself whether there is anything to do.
    def build
      return unless @install

      announce("building memintro")
      CargoBuild.new.run(into: File.join(ROOT, "lib", "memintro"))
    rescue CargoBuild::Failed => e
      announce("#{e.message}\nbench: memintro's columns show what was built before, if anything")
    end

    def announce(text)
      warn "bench: #{text}"
    end
  end
end
