# frozen_string_literal: true

require "shellwords"
require_relative "patch_release"

module Matrix
  # A Ruby inside its Debian root: installed or built there, called by the plain names of its programs.
  class RubyHome
    attr_reader :entry, :root

    # @param entry [RubyEntry]
    # @param root [DebianRoot] prepared
    def initialize(entry, root)
      @entry = entry
      @root = root
      @patch_release = PatchRelease.new(entry, root)
    end

    # Sets up what is not there yet.
    def prepare
      entry.source? ? build : install
      link_programs
      @patch_release.prepare
    end

    # The variables by which its programs, and Debian's pure Ruby gems, are found.
    #
    # @param gem_home [String] folder inside the root for what the matrix installs
    # @return [Hash{String => String}]
    def environment(gem_home: "/opt/matrix/#{entry.name}/gems")
      path = "#{entry.bin}:#{DebianRoot::TOOLCHAIN}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
      env = { "PATH" => path, "GEM_HOME" => gem_home, "CARGO_TARGET_DIR" => nil }
      env["MEMINTRO_MATRIX_RUBY"] = entry.name
      # The specs of a Ruby with all libraries and a compiler must not skip for want of them.
      env["MEMINTRO_MATRIX_OWN"] = "1" if entry.own_of_release?
      env["MEMINTRO_MATRIX_YJIT"] = "1" if entry.yjit?
      env.update(@patch_release.environment)
      env["GEM_PATH"] = "#{own_gems}:/usr/share/rubygems-integration/all" if entry.source?
      env
    end

    # @return [Array<String>] bundled gems that it lacks: Debian's Rubies have all
    def missing_libraries = []

    # @return [String] its own description
    def description = root.output(entry.program, "-v").strip

    # One of Debian's programs, whose libraries are found after this Ruby's own.
    DEBIAN_PROGRAM = <<~'SHELL'
      #!/bin/sh
      exec "$(dirname "$0")/ruby" -e '
        gems = "/usr/share/rubygems-integration/all/gems/{rake,rspec,diff-lcs,parallel}*/lib"
        $LOAD_PATH.push(*Dir[gems], "/usr/lib/ruby/vendor_ruby")
        load $0 = "/usr/bin/PROGRAM"' -- "$@"
    SHELL
    # Debian's libraries in pure Ruby are usable by a built Ruby as well.
    PURE_RUBY = <<~'SHELL'
      lib=$(dirname "$(dirname "$program")")/lib/ruby
      [ -L "$lib/vendor_ruby" ] || rm -rf --one-file-system "$lib/vendor_ruby"
      ln -sfn /usr/lib/ruby/vendor_ruby "$lib/vendor_ruby"
    SHELL
    private_constant :PURE_RUBY

    private

    # The folder in which a built Ruby keeps its bundled gems. Without it, its path would contain Debian's, with
    # extensions that it cannot load.
    def own_gems
      folder = Dir[File.join(root.path, entry.prefix, "lib", "ruby", "gems", "*")].first
      folder ? File.join(entry.prefix, "lib", "ruby", "gems", File.basename(folder)) : ""
    end

    def install
      missing = root.install(entry.package, "#{entry.package}-dev", from: entry.suite)
      raise Failed, "#{entry.name}: #{entry.suite || entry.debian} has no #{missing.join(', ')}" if missing.any?
    end

    # Built from Debian's sources with Debian's patches, unchanged.
    def build
      return if there?(entry.program)

      root.prepare("source")
      script = <<~SHELL
        rm -rf /opt/source/#{entry.name}; mkdir -p /opt/source/#{entry.name}; cd /opt/source/#{entry.name}
        apt-get source -q #{entry.package}
        cd #{entry.package}-*/
        ./configure --prefix=#{entry.prefix} --disable-install-doc #{entry.configure}
        nice -n 10 make -j2
        make install
      SHELL
      root.run!("bash", "-ec", script)
    end

    # Makes `ruby`, `gem`, `rspec` mean this Ruby's, whatever the release's own Ruby is.
    def link_programs
      script = +"program=#{entry.program}; mkdir -p #{entry.bin}; ln -sf $program #{entry.bin}/ruby\n"
      %w[gem irb erb bundle rake].each do |name|
        from = entry.source? ? "#{entry.prefix}/bin/#{name}" : "/usr/bin/#{name}#{entry.package.delete_prefix('ruby')}"
        script << "[ ! -e #{from} ] || ln -sf #{from} #{entry.bin}/#{name}\n"
      end
      script << PURE_RUBY if entry.source?
      rspec = DEBIAN_PROGRAM.gsub("PROGRAM", "rspec")
      script << "cat > #{entry.bin}/rspec <<'RSPEC'\n#{rspec}RSPEC\nchmod +x #{entry.bin}/rspec\n"
      root.run!("sh", "-ec", script)
    end

    def there?(inside) = File.exist?(File.join(root.path, inside))
  end
end
