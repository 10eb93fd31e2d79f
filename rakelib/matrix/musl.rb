# frozen_string_literal: true

require "tmpdir"
require_relative "musl_rust"

module Matrix
  # A Ruby that was built with musl, the extension built for it as `gem install` would do it, and a script of checks
  # that it runs (musl/check.rb). The Ruby is made from Debian's source package, without the extensions that need
  # libraries which Debian has only for glibc: openssl, psych, readline, fiddle, zlib.
  class Musl
    RUBY = "/opt/ruby-3.3-musl/bin/ruby"
    SOURCE = %w[dpkg-dev autoconf bison pkg-config ruby].freeze
    # Debian's musl-dev has the function crypt_r, but not its header.
    BUILD_RUBY = <<~SHELL
      rm -rf /opt/source/3.3-musl; mkdir -p /opt/source/3.3-musl; cd /opt/source/3.3-musl
      apt-get source -q ruby3.3
      cd ruby3.3-*/
      ./configure CC=musl-gcc --prefix=/opt/ruby-3.3-musl --disable-shared --disable-install-doc --disable-yjit \
        --disable-rjit --without-gmp --with-out-ext=openssl,psych,readline,fiddle,zlib,dbm,gdbm ac_cv_func_crypt_r=no
      nice make -j2
      make install
    SHELL
    HEADERS = "-nostdinc -isystem /usr/lib/llvm-19/lib/clang/19/include -isystem /usr/include/x86_64-linux-musl"
    INTO = "/opt/musl/checkout"
    # The gem's own build makes it. It must be told the target, because Rust itself runs with glibc here.
    BUILD = <<~SHELL
      rm -rf #{INTO}; mkdir -p #{INTO}
      cp -a lib exe examples rakelib #{INTO}/
      rm -f #{INTO}/lib/memintro/*.so #{INTO}/lib/memintro/memintro-tool
      #{RUBY} -r ./ext/memintro/cargo_build -e 'CargoBuild.new.run(into: "#{INTO}/lib/memintro")'
    SHELL
    private_constant :BUILD_RUBY, :BUILD, :HEADERS

    # @param folder [String] of the matrix
    # @param checkout [String]
    def initialize(folder:, checkout:)
      @log = File.join(folder, "musl.log")
      @root = DebianRoot.new("trixie", name: "trixie-aarch64", folder: folder, log: @log)
      @rust = MuslRust.new(@root, checkout: checkout)
    end

    # Prints what the checks say.
    #
    # @raise [Failed] where one of them, or a build, fails
    def call
      @rust.prepare
      @root.install(*SOURCE)
      @root.run!("bash", "-ec", BUILD_RUBY) unless File.exist?(File.join(@root.path, RUBY))
      @rust.run!("sh", "-ec", BUILD, env: environment)
      puts "a libc.so of musl alone: #{foreign.empty? ? 'yes' : raise(Failed, "needs #{foreign.join(', ')}")}"
      check
    end

    private

    def environment
      { "CARGO_BUILD_TARGET" => MuslRust::TARGET, "CARGO_UNSTABLE_BUILD_STD" => MuslRust::STD,
        "RUSTFLAGS" => MuslRust::FLAGS, "BINDGEN_EXTRA_CLANG_ARGS" => HEADERS,
        # Link-time optimization makes no difference for musl, and takes minutes.
        "CARGO_PROFILE_RELEASE_LTO" => "off", "CARGO_PROFILE_RELEASE_CODEGEN_UNITS" => "16" }
    end

    # The libraries besides musl that the built files need.
    def foreign
      files = Dir[File.join(@root.path, INTO, "lib/memintro/{*.so,memintro-tool}")]
      raise Failed, "#{files.size} of 3 parts were built; see #{@log}" unless files.size == 3

      files.flat_map { |file| IO.popen(["readelf", "--dynamic", file], &:read).scan(/NEEDED.*\[(.*)\]/).flatten }
           .uniq - ["libc.so"]
    end

    def check
      script = 'folder=$(mktemp -d); trap "rm -rf $folder" EXIT; timeout 600 "$0" -Ilib "$@" "$folder"'
      out = "#{@log}.out"
      FileUtils.rm_f(out)
      status = @root.run("sh", "-c", script, RUBY, "#{INTO}/rakelib/matrix/musl/check.rb", chdir: INTO, out: out)
      puts File.read(out)
      raise Failed, "the checks on musl failed" unless status.success?
    end
  end
end
