# frozen_string_literal: true

require_relative "../matrix/debian_root"

module Native
  # A Debian root with Ruby and nothing else, not even this machine's Rust. The gem is installed there.
  class BareRoot < Matrix::DebianRoot
    COMPILERS = %w[cc gcc g++ clang ld make cargo rustc].freeze

    # @param entry [Matrix::RubyEntry]
    # @param folder [String] of the matrix
    def initialize(entry, folder:)
      name = "#{entry.debian}-bare"
      super(entry.debian, folder: folder, name: name, log: File.join(folder, "#{name}.log"))
      @entry = entry
    end

    # @raise [Matrix::Failed] also if there is a program that could compile
    def prepare
      super()
      missing = install(@entry.package, from: @entry.suite)
      raise Matrix::Failed, "#{release} has no #{missing.join(', ')}" if missing.any?

      found = output("sh", "-c", "for name; do command -v $name; done", "sh", *COMPILERS).split
      raise Matrix::Failed, "#{release} is not bare: it has #{found.join(', ')}" if found.any?
    end

    private

    def toolchain = {}
  end
end
