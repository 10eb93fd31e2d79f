# frozen_string_literal: true

require_relative "../matrix/debian_root"
require_relative "../matrix/ruby_entry"

module Native
  # The Rubies that the gem is built for: those of the matrix that Debian has as a package. All are compiled in the
  # root of the oldest Debian among them, whose glibc is then the oldest that the gem runs with. The Rubies of later
  # Debians do not run there. Their headers are mounted, and a stand-in program provides their RbConfig, because the
  # build asks a Ruby for nothing else.
  class TargetRubies
    INSIDE = "/opt/native/rubies"

    attr_reader :entries

    # @param folder [String] of the matrix
    def initialize(folder)
      @folder = folder
      @entries = Matrix::RubyEntry.all.reject(&:source?)
    end

    # @return [Matrix::DebianRoot] where everything is compiled
    def root = @root ||= root_of(entries.first)

    # @return [Matrix::DebianRoot] of this Ruby's Debian, with its headers
    def root_of(entry)
      Matrix::DebianRoot.new(entry.debian, folder: @folder, log: File.join(@folder, "#{entry.debian}.log"))
    end

    # Installs compilers and headers, and makes the stand-ins.
    def prepare
      root.prepare("build")
      entries.each do |entry|
        from = root_of(entry)
        from.prepare
        missing = from.install(entry.package, "#{entry.package}-dev", from: entry.suite)
        raise Matrix::Failed, "#{entry.debian} has no #{missing.join(', ')}" if missing.any?

        make_stand_in(entry, from) unless at_home?(entry)
      end
    end

    # @return [String] the program to call inside for the Ruby of this entry
    def program(entry) = at_home?(entry) ? entry.program : "#{INSIDE}/#{entry.name}/#{entry.package}"

    # @return [Hash{String => String}] folder outside => inside
    def binds
      away = entries.reject { |entry| at_home?(entry) }
      headers = away.flat_map do |entry|
        from = root_of(entry).path
        Dir.glob("usr/include/{,*/}ruby-#{entry.name}.*", base: from).map { |dir| [File.join(from, dir), "/#{dir}"] }
      end
      headers.to_h.merge(File.join(@folder, "native", "rubies") => INSIDE)
    end

    private

    def at_home?(entry) = entry.debian == entries.first.debian

    # RbConfig refuses to be loaded by another Ruby, and expects its program in /usr/bin.
    def make_stand_in(entry, from)
      file = Dir[File.join(from.path, "usr/lib/*/ruby/#{entry.name}.*/rbconfig.rb")].first
      text = File.read(file).sub(/^  RUBY_VERSION\.start_with\?.*\n.*raise .*\n/, "")
                 .sub(/^  CONFIG\["bindir"\] = .*/, %(  CONFIG["bindir"] = "#{INSIDE}/#{entry.name}"))
      folder = File.join(@folder, "native", "rubies", entry.name)
      FileUtils.mkdir_p(folder)
      File.write(File.join(folder, "rbconfig.rb"), text)
      program = File.join(folder, entry.package)
      File.write(program, "#!/bin/sh\nexec #{entries.first.program} --disable-gems -I#{INSIDE}/#{entry.name} \"$@\"\n")
      File.chmod(0o755, program)
    end
  end
end
