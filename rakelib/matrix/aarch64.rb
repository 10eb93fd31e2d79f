# frozen_string_literal: true

require_relative "debian_root"

module Matrix
  # The hook on aarch64: cross-built by Debian's own Rust, which has the standard library of that architecture, and
  # compared with the native truth program under qemu's emulation. Ruby itself is not emulated.
  class Aarch64
    PACKAGES = %w[build-essential g++-aarch64-linux-gnu qemu-user].freeze
    RUST = %w[cargo rustc libstd-rust-dev:arm64].freeze
    CHECKOUT = "/opt/matrix/checkout"

    # @param folder [String] of the matrix
    # @param checkout [String]
    def initialize(folder:, checkout:)
      @checkout = checkout
      @log = File.join(folder, "aarch64.log")
      @root = DebianRoot.new("trixie", name: "trixie-aarch64", folder: folder, log: @log)
    end

    # Prints what the truth program says, preloaded and live.
    #
    # @raise [Failed]
    def call
      @root.prepare
      @root.add_architecture("arm64")
      @root.install(*PACKAGES)
      @root.install(*RUST, from: "trixie-backports")
      FileUtils.rm_f("#{@log}.out")
      @root.run!("bash", "-ec", SCRIPT, env: { "PATH" => "/usr/sbin:/usr/bin:/sbin:/bin" }, chdir: CHECKOUT,
                                        binds: { @checkout => CHECKOUT }, out: "#{@log}.out")
      puts File.readlines("#{@log}.out").grep(/^\{|^ELF|preloaded|live/)
    end

    SCRIPT = <<~'SHELL'
      export CARGO_TARGET_DIR=/opt/target CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
      cargo build --locked --release --target aarch64-unknown-linux-gnu --package memintro-hook
      hook=/opt/target/aarch64-unknown-linux-gnu/release/libmemintro_hook.so
      aarch64-linux-gnu-g++ -std=c++17 -O1 -g -fno-builtin -fno-optimize-sibling-calls -w \
        -Ispec/fixtures/programs -Icrates/abi/include -pthread -rdynamic -o /opt/truth spec/fixtures/programs/truth.cc -ldl
      run() { qemu-aarch64 -L /usr/aarch64-linux-gnu "$@"; }
      echo preloaded
      run -E LD_PRELOAD=$hook -E MEMINTRO_HOOK=$hook -E MEMINTRO_MODE=full /opt/truth 100000 4 1
      echo live
      run -E MEMINTRO_HOOK=$hook /opt/truth 100000 4 1
    SHELL
    private_constant :SCRIPT
  end
end
