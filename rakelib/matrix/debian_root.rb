# frozen_string_literal: true

require "fileutils"
require "open3"
require "rbconfig"
require "shellwords"
require "yaml"

module Matrix
  # An error that says what is missing on this machine.
  class Failed < StandardError; end

  # A Debian release in a folder: made by debootstrap once, entered with chroot in a mount namespace of its own, so
  # that no mount outlives the command. Needs root, or sudo.
  class DebianRoot
    PACKAGES = YAML.safe_load(File.read(File.join(__dir__, "packages.yml")))
    TOOLCHAIN = "/opt/rust"
    CARGO_HOME = "/opt/cargo"

    # The source of this machine's own packages; MEMINTRO_MATRIX_MIRROR names another.
    def self.mirror
      @mirror ||= ENV.fetch("MEMINTRO_MATRIX_MIRROR") do
        sites = IO.popen(["apt-get", "indextargets", "--format", "$(SITE)"], &:readlines).map(&:strip)
        sites.find { |site| site.end_with?("/debian") } ||
          raise(Failed, "apt has no source of Debian's packages here: set MEMINTRO_MATRIX_MIRROR to a mirror's address")
      end
    end

    # The source of a suite. Security updates have an archive of their own.
    def self.archive(suite)
      suite.end_with?("-security") ? mirror.sub(%r{\A(.*)/debian(?=/|\z)}, '\1/debian-security') : mirror
    end

    # The reason why no root can be made or entered on this machine, or nil.
    def self.impossible
      folders = ENV.fetch("PATH", "").split(":") << "/usr/sbin"
      has_debootstrap = folders.any? { |folder| File.executable?(File.join(folder, "debootstrap")) }
      return "debootstrap is not installed: apt-get install debootstrap" unless has_debootstrap

      may_mount = system(*as_root, "unshare", "--mount", "--pid", "--fork", "true", out: File::NULL, err: File::NULL)
      "mounting needs root, or sudo, and a container that allows it" unless may_mount
    end

    # The words before a command that needs root.
    def self.as_root = Process.uid.zero? ? [] : ["sudo", "--non-interactive"]

    # The folder in which this machine's cargo keeps fetched crates.
    def self.cargo_home = ENV.fetch("CARGO_HOME") { File.expand_path("~/.cargo") }

    attr_reader :release, :path, :log

    # @param release [String] such as "trixie"
    # @param folder [String] of the matrix
    # @param log [String] file to which everything is written
    # @param name [String] of the root, where a release has several
    def initialize(release, folder:, log:, name: release)
      @release = release
      @path = File.join(folder, "roots", name)
      @log = log
    end

    # Makes the root if it does not exist, and installs the packages that are missing.
    def prepare(*groups)
      bootstrap unless File.exist?(File.join(path, "etc", "matrix-ready"))
      install(*PACKAGES.values_at(*groups).flatten)
    end

    # Installs those of the packages that the release has. from: a suite that is used for these packages alone.
    #
    # @return [Array<String>] those it does not have
    def install(*names, from: nil)
      add_suite(from) if from
      missing = names.reject { |name| installed?(name) }
      return [] if missing.empty?

      known, unknown = missing.partition { |name| available?(name) }
      option = from ? ["-t", from] : []
      apt("install", "-y", "--no-install-recommends", *option, *known) if known.any?
      unknown
    end

    # Runs a command inside. Its environment is env and the toolchain's variables. binds: folder outside => folder
    # inside.
    #
    # @return [Process::Status]
    def run(*command, env: {}, binds: {}, chdir: "/", out: log)
      pid = spawn(*outside(command, env, binds, chdir), in: File::NULL, out: [out, "a"], err: %i[child out])
      Process.wait2(pid).last
    end

    # The same as run, but raises if the command fails.
    def run!(*command, **options)
      return if run(*command, **options).success?

      raise Failed, "#{release}: #{command.first(4).join(' ')} … failed; see #{options.fetch(:out, log)}"
    end

    # Standard output of a command inside.
    def output(*command, env: {}, binds: {})
      Open3.capture2(*outside(command, env, binds, "/"), err: [log, "a"]).first
    end

    # @return [String] where commands see a folder that they are given
    def seen_at(_outside, inside) = inside

    # Packages of another architecture can be installed from then on.
    def add_architecture(name)
      return if output("dpkg", "--print-foreign-architectures").split.include?(name)

      run!("dpkg", "--add-architecture", name)
      apt("update")
    end

    # Writes a file inside.
    def write(name, text)
      file = File.join(path, name)
      return File.write(file, text) if Process.uid.zero?

      Open3.capture2(*as_root, "tee", file, stdin_data: text)
    end

    private

    def bootstrap
      system(*as_root, "rm", "-rf", path)
      FileUtils.mkdir_p(File.dirname(path))
      command = ["env", "PATH=#{ENV.fetch('PATH')}:/usr/sbin:/sbin", "debootstrap", "--variant=minbase", release, path]
      system(*as_root, *command, DebianRoot.mirror, in: File::NULL, out: [log, "a"], err: %i[child out]) ||
        raise(Failed, "debootstrap of #{release} failed; see #{log}")
      write_sources
      apt("install", "-y", "--no-install-recommends", "ca-certificates")
      write("etc/matrix-ready", "")
    end

    # Adds the updates of the release, and its sources.
    def write_sources
      suites = [release, "#{release}-updates"]
      write("etc/apt/sources.list", suites.flat_map { |suite| source_lines(suite) }.join)
      write("etc/apt/apt.conf.d/90matrix", %(APT::Sandbox::User "root";\n))
      apt("update")
    end

    # Packages of such a suite are installed only on request.
    def add_suite(suite)
      file = "etc/apt/sources.list.d/#{suite}.list"
      return if File.exist?(File.join(path, file))

      write("etc/apt/preferences.d/#{suite}", "Package: *\nPin: release n=#{suite}\nPin-Priority: 1\n")
      write(file, source_lines(suite).join)
      apt("update")
    end

    # The metadata of mirrors and snapshots may have expired; the signature is still checked.
    def source_lines(suite)
      %w[deb deb-src].map { |kind| "#{kind} [check-valid-until=no] #{DebianRoot.archive(suite)} #{suite} main\n" }
    end

    def apt(*arguments)
      run!("apt-get", "-q", *arguments, env: { "DEBIAN_FRONTEND" => "noninteractive" })
    end

    def installed?(name)
      output("dpkg-query", "-W", "-f=${db:Status-Status}", name) == "installed"
    end

    # `apt-cache show` is not used, because it also knows names that another package merely provides.
    def available?(name)
      output("apt-cache", "policy", name).match?(/^  Candidate: [^(]/)
    end

    def outside(command, env, binds, chdir)
      env = { "PATH" => "#{TOOLCHAIN}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
              "HOME" => "/root", "LANG" => "C.UTF-8", "CARGO_HOME" => CARGO_HOME, "TERM" => "dumb" }.merge(env)
      inside = ["env", "-i", *env.compact.map { |pair| pair.join("=") },
                "sh", "-c", 'cd "$0" && exec "$@"', chdir, *command]
      as_root + ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private",
                 "sh", "-ec", mounts(binds), "sh", path, *inside]
    end

    # A shell script that mounts what every command needs and then becomes the command.
    def mounts(binds)
      # This is a mount of its own, so that commands inside can have mount namespaces as well.
      text = +"root=$1; shift\nmount --bind \"$root\" \"$root\"\n"
      text << "mount -t proc proc \"$root/proc\"\nmount --rbind /dev \"$root/dev\"\n"
      text << "cp /etc/resolv.conf \"$root/etc/resolv.conf\"\n"
      [*toolchain, *binds].each do |from, to|
        text << "mkdir -p \"$root\"#{to.shellescape}\nmount --bind #{from.shellescape} \"$root\"#{to.shellescape}\n"
      end
      text << "exec chroot \"$root\" \"$@\"\n"
    end

    # Rust of the machine outside: the toolchain itself, so that no rustup is needed inside, and the crates fetched so
    # far.
    def toolchain
      @toolchain ||= begin
        sysroot = IO.popen(%w[rustc --print sysroot], &:read).strip
        raise Failed, "rustc does not run: install Rust (https://rustup.rs)" if sysroot.empty?

        FileUtils.mkdir_p(DebianRoot.cargo_home)
        { sysroot => TOOLCHAIN, DebianRoot.cargo_home => CARGO_HOME }
      end
    end

    def as_root = DebianRoot.as_root
  end
end
