# frozen_string_literal: true

require_relative "debian_root"

module Matrix
  # What can be said of musl and macOS without a machine of theirs: whether the compiler accepts the crates for them.
  # Nothing is linked or run. Their standard libraries come from nowhere here, so that is compiled from its source, too;
  # Debian has the source beside its own Rust.
  class OtherTargets
    RUST = %w[cargo rustc rust-src].freeze
    CHECKOUT = "/opt/matrix/checkout"
    # Of the machine outside, for what the standard library's build fetches.
    CERTIFICATES = "/etc/ssl/certs"
    # For macOS what needs neither glibc nor Ruby's headers of that platform.
    TARGETS = {
      "x86_64-unknown-linux-musl" => %w[memintro-abi memintro-elf memintro-tracker memintro-analysis memintro-hook
                                        memintro memintro-tool],
      "aarch64-apple-darwin" => %w[memintro-abi memintro-analysis memintro-tool]
    }.freeze

    # @param folder [String] of the matrix
    # @param checkout [String]
    def initialize(folder:, checkout:)
      @checkout = checkout
      @log = File.join(folder, "other-targets.log")
      @root = DebianRoot.new("trixie", name: "trixie-aarch64", folder: folder, log: @log)
    end

    # Prints each target with what was accepted.
    #
    # @raise [Failed] where a crate is not
    def call
      @root.prepare("build")
      @root.install("ruby-dev", "ruby", "libclang1-19", "libclang-common-19-dev")
      @root.install(*RUST, from: "trixie-backports")
      refused = TARGETS.flat_map { |target, crates| crates.reject { |crate| accepted?(target, crate) } }
      raise Failed, "not accepted: #{refused.join(', ')}; see #{@log}" if refused.any?
    end

    private

    def accepted?(target, crate)
      # Debian's Rust is a release; building the standard library is not in releases.
      env = { "PATH" => "/usr/sbin:/usr/bin:/sbin:/bin", "RUSTC_BOOTSTRAP" => "1", "CARGO_TARGET_DIR" => "/opt/target",
              "LIBCLANG_PATH" => "/usr/lib/llvm-19/lib",
              "BINDGEN_EXTRA_CLANG_ARGS" => "-I/usr/lib/llvm-19/lib/clang/19/include",
              "CARGO_HTTP_CAINFO" => "/opt/certificates/ca-certificates.crt" }
      status = @root.run("cargo", "check", "--locked", "--target", target, "-Zbuild-std=std,panic_unwind",
                         "--package", crate, env: env, chdir: CHECKOUT,
                                             binds: { @checkout => CHECKOUT, CERTIFICATES => "/opt/certificates" })
      puts "#{target}: #{crate}: #{status.success? ? 'accepted' : 'refused'}"
      status.success?
    end
  end
end
