# frozen_string_literal: true

require_relative "../matrix/debian_root"
require_relative "../matrix/installed_ruby"
require_relative "../matrix/ruby_entry"

module Native
  # The Rubies that the gem is built for: those of the matrix that Debian has as a package. All are compiled in the
  # root of the oldest Debian among them, whose glibc is then the oldest that the gem runs with. The Rubies of later
  # Debians do not run there, nor do those that are installed on this machine. Their headers are mounted, and a stand-in
  # program provides their RbConfig, because the build asks a Ruby for nothing else.
  class TargetRubies
    INSIDE = "/opt/native/rubies"

    # @return [Array<Matrix::RubyEntry>] those of Debian, the oldest first
    attr_reader :entries

    # @return [Array<Matrix::InstalledRuby>] those of this machine
    attr_reader :installed

    # @param folder [String] of the matrix
    # @param prefixes [Array<String>] of Rubies that are installed on this machine
    # @raise [Matrix::Failed] if two of all are of the same version
    def initialize(folder, prefixes: [])
      @folder = folder
      @entries = Matrix::RubyEntry.all.reject(&:source?)
      @installed = prefixes.map { |prefix| Matrix::InstalledRuby.new(prefix, folder: folder) }
      twice = versions.tally.select { |_, count| count > 1 }.keys
      raise Matrix::Failed, "Ruby #{twice.join(', ')} would be in the gem twice" if twice.any?
    end

    # @return [Array<Matrix::RubyEntry, Matrix::InstalledRuby>] in the order in which they are compiled
    def all = entries + installed

    # @return [Array<String>] such as "3.4"
    def versions = all.map { |ruby| version(ruby) }

    # @return [String] the version that names a Ruby's folder in the gem
    def version(ruby) = installed.include?(ruby) ? ruby.version : ruby.name

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

        make_stand_in(entry.name, Dir[File.join(from.path, "usr/lib/*/ruby/#{entry.name}.*/rbconfig.rb")].first) unless
          at_home?(entry)
      end
      installed.each { |ruby| make_stand_in(ruby.version, ruby.rbconfig) }
    end

    # @return [String] the program to call inside for this Ruby
    def program(ruby) = at_home?(ruby) ? ruby.program : "#{INSIDE}/#{version(ruby)}/ruby"

    # @return [Hash{String => String}] folder outside => inside
    def binds
      away = entries.reject { |entry| at_home?(entry) }
      headers = away.flat_map do |entry|
        from = root_of(entry).path
        Dir.glob("usr/include/{,*/}ruby-#{entry.name}.*", base: from).map { |dir| [File.join(from, dir), "/#{dir}"] }
      end
      headers += installed.map { |ruby| [File.join(ruby.prefix, "include")] * 2 }
      headers.to_h.merge(File.join(@folder, "native", "rubies") => INSIDE)
    end

    private

    def at_home?(ruby) = !installed.include?(ruby) && ruby.debian == entries.first.debian

    # RbConfig refuses to be loaded by another Ruby, and expects its program where it was installed.
    def make_stand_in(version, rbconfig)
      folder = File.join(@folder, "native", "rubies", version)
      text = File.read(rbconfig).sub(/^  RUBY_VERSION\.start_with\?.*\n.*raise .*\n/, "")
                 .sub(/^  CONFIG\["bindir"\] = .*/, %(  CONFIG["bindir"] = "#{INSIDE}/#{version}"))
                 .sub(/^  CONFIG\["ruby_install_name"\] = .*/, '  CONFIG["ruby_install_name"] = "ruby"')
      FileUtils.mkdir_p(folder)
      File.write(File.join(folder, "rbconfig.rb"), text)
      program = File.join(folder, "ruby")
      File.write(program, "#!/bin/sh\nexec #{entries.first.program} --disable-gems -I#{INSIDE}/#{version} \"$@\"\n")
      File.chmod(0o755, program)
    end
  end
end
