# frozen_string_literal: true

require "json"

module Matrix
  # Another patch release of an installed Ruby, unpacked beside it. Files built with one release can be run by the
  # other. apt uses a separate configuration for it, so the root's Ruby and sources do not change.
  class PatchRelease
    KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"

    # @param entry [RubyEntry]
    # @param root [DebianRoot]
    def initialize(entry, root)
      @entry = entry
      @root = root
      @reason = "no other patch release was looked for"
    end

    # Fetches it if it is missing. If it cannot be fetched, the other suites run without it.
    def prepare
      @reason = nil
      fetch unless there?
    rescue Failed => e
      @reason = e.message
    end

    # Variables for the specs: how to call it, or why there is none.
    #
    # @return [Hash{String => String}]
    def environment
      return { "MEMINTRO_MATRIX_UNPATCHED" => @reason } if @reason

      { "MEMINTRO_MATRIX_PATCHED" => JSON.generate(program: program, env: variables) }
    end

    private

    attr_reader :entry, :root

    def fetch
      raise Failed, "rubies.yml names no suite with another patch release of Ruby #{entry.name}" unless entry.patched

      list
      offered = root.output("apt-cache", "policy", entry.package, env: apt)[/Candidate: (?:\d+:)?(\d+\.\d+\.\d+)/, 1]
      raise Failed, "#{entry.patched} has no #{entry.package}" unless offered
      raise Failed, "#{entry.patched} has Ruby #{offered}, no newer one than #{own}" unless newer?(offered)

      unpack
      raise Failed, "Ruby #{offered} of #{entry.patched} does not run in #{entry.debian}" unless there?
    end

    # Only packages of the suite, as if no package were installed.
    def list
      root.run!("rm", "-rf", folder)
      root.run!("mkdir", "-p", "#{folder}/lists/partial", "#{folder}/cache/archives/partial")
      root.write("#{folder}/sources.list", "deb [check-valid-until=no signed-by=#{KEYRING}] " \
                                           "#{DebianRoot.archive(entry.patched)} #{entry.patched} main\n")
      root.write("#{folder}/status", "")
      root.write("#{folder}/apt.conf", <<~CONF)
        Dir::Etc::SourceList "#{folder}/sources.list";
        Dir::Etc::SourceParts "/dev/null";
        Dir::Etc::PreferencesParts "/dev/null";
        Dir::State::Lists "#{folder}/lists";
        Dir::State::Status "#{folder}/status";
        Dir::Cache "#{folder}/cache";
      CONF
      root.run!("apt-get", "-q", "update", "--error-on=any", env: apt)
    end

    def unpack
      root.run!("apt-get", "-q", "download", entry.package, "lib#{entry.package}", env: apt, chdir: folder)
      root.run!("sh", "-ec", 'for package in *.deb; do dpkg -x "$package" .; done', chdir: folder)
    end

    # Checks that it runs and differs from the installed one.
    def there?
      File.exist?(File.join(root.path, program)) && newer?(root.output(program, *ANSWER, env: variables))
    end

    # With its own extensions, whose libraries must be installed as well.
    ANSWER = ["-ropenssl", "-rpsych", "-rfiddle", "-robjspace", "-e", "print RUBY_VERSION"].freeze
    private_constant :ANSWER

    def newer?(version) = Gem::Version.new(version) > Gem::Version.new(own)

    def own = @own ||= root.output(entry.program, "-e", "print RUBY_VERSION")

    def apt = { "APT_CONFIG" => "#{folder}/apt.conf" }

    # Folder inside the root.
    def folder = "/opt/ruby-#{entry.name}-patched"

    def program = "#{folder}/usr/bin/#{entry.package}"

    # Its own library and its own standard library come first, then the root's folders.
    def variables
      native = File.dirname(inside("usr/lib/*/libruby-*.so.*").first.to_s)
      { "LD_LIBRARY_PATH" => native,
        "RUBYLIB" => (inside("usr/lib/ruby/[0-9]*") + inside("usr/lib/*/ruby/[0-9]*")).join(":") }
    end

    # Those of the files in the folder that exist, as paths inside the root.
    def inside(pattern)
      Dir.glob(pattern, base: File.join(root.path, folder)).sort.map { |name| File.join(folder, name) }
    end
  end
end
