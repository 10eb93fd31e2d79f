# frozen_string_literal: true

require_relative "debian_root"

module Matrix
  # Rust for musl inside a Debian root, and what it needs to link there. Debian has musl, a compiler for it, and
  # Rust's source, but no standard library for musl, so that is compiled along with the crates.
  class MuslRust
    TARGET = "x86_64-unknown-linux-musl"
    # The library that unwinds stacks is LLVM's, from the same Debian.
    PACKAGES = %w[musl-tools libunwind-19-dev binutils libclang1-19 libclang-common-19-dev].freeze
    RUST = %w[cargo rustc rust-src].freeze
    CHECKOUT = "/opt/matrix/checkout"
    # A folder of the machine outside, for files that the build of the standard library fetches.
    CERTIFICATES = "/etc/ssl/certs"
    LIBRARIES = "/opt/musl"
    STD = "std,panic_unwind,test"
    TARGET_FOLDER = "/opt/target"
    # Debian's Rust is a release, and releases do not allow building the standard library.
    ENVIRONMENT = { "PATH" => "/usr/sbin:/usr/bin:/sbin:/bin", "RUSTC_BOOTSTRAP" => "1",
                    "CARGO_TARGET_DIR" => TARGET_FOLDER, "LIBCLANG_PATH" => "/usr/lib/llvm-19/lib",
                    "BINDGEN_EXTRA_CLANG_ARGS" => "-I/usr/lib/llvm-19/lib/clang/19/include",
                    "CARGO_HTTP_CAINFO" => "/opt/certificates/ca-certificates.crt" }.freeze
    FLAGS = "-Clink-self-contained=no -Lnative=#{LIBRARIES} -Lnative=/usr/lib/x86_64-linux-musl".freeze
    LINKING = { "CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_LINKER" => "musl-gcc" }.freeze
    # Programs need libunwind.a; shared libraries need the same under the name that Rust asks for.
    SCRIPT = <<~SHELL.freeze
      mkdir -p #{LIBRARIES}
      musl-gcc -O2 -fPIC -c rakelib/matrix/musl/unwind.c -o #{LIBRARIES}/unwind.o
      cp /usr/lib/llvm-19/lib/libunwind.a #{LIBRARIES}/libunwind.a
      ar r #{LIBRARIES}/libunwind.a #{LIBRARIES}/unwind.o
      echo 'INPUT(#{LIBRARIES}/libunwind.a)' > #{LIBRARIES}/libgcc_s.so
    SHELL
    private_constant :SCRIPT, :LINKING

    attr_reader :root

    # @param root [DebianRoot]
    # @param checkout [String]
    def initialize(root, checkout:)
      @root = root
      @checkout = checkout
    end

    # Installs what is missing, and completes the unwinding library.
    def prepare
      root.prepare("build")
      root.install(*PACKAGES)
      root.install(*RUST, from: "trixie-backports")
      run!("sh", "-ec", SCRIPT)
    end

    # Runs cargo in the checkout, for the target.
    #
    # @param out [String] where its output goes
    # @return [Process::Status]
    def cargo(name, *arguments, target: TARGET, out: root.log)
      root.run("nice", "cargo", name, "--locked", "--target", target, "-Zbuild-std=#{STD}", *arguments,
               **inside({ "CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_RUSTFLAGS" => FLAGS }, out))
    end

    # Runs a command in the checkout.
    #
    # @raise [Failed] if it fails
    def run!(*command, env: {})
      root.run!(*command, **inside(env))
    end

    # The path outside of a file that was built.
    def product(name)
      File.join(root.path, TARGET_FOLDER, TARGET, "debug", name)
    end

    private

    def inside(env = {}, out = root.log)
      { env: { **ENVIRONMENT, **LINKING, **env }, chdir: CHECKOUT, out: out,
        binds: { @checkout => CHECKOUT, CERTIFICATES => "/opt/certificates" } }
    end
  end
end
