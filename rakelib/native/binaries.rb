# frozen_string_literal: true

require "open3"

module Native
  # What is wrong with the gem, or with this machine, in words.
  class Failed < StandardError; end

  # A compiled file, as readelf sees it.
  class Binary
    # What a program of glibc's has anyway, and libgcc's unwinder, which every Debian has.
    LIBRARIES = %w[libc.so.6 libm.so.6 libgcc_s.so.1 ld-linux-x86-64.so.2].freeze

    attr_reader :path

    # @param path [String]
    def initialize(path)
      @path = path
    end

    def name = File.basename(path)

    # The oldest glibc that has all the versions of symbols that the file asks for.
    #
    # @return [Gem::Version]
    def glibc
      versions = readelf("--version-info").scan(/Name: GLIBC_(\d+(?:\.\d+)+)/).flatten
      raise Failed, "#{name} asks glibc for nothing" if versions.empty?

      versions.map { |version| Gem::Version.new(version) }.max
    end

    # Libraries that it brings in and that a machine need not have.
    #
    # @return [Array<String>]
    def foreign_libraries
      readelf("--dynamic").scan(/\(NEEDED\).*\[(.*)\]/).flatten - LIBRARIES
    end

    # @return [String] hexadecimal
    def build_id
      readelf("--notes")[/Build ID: (\h{10,})/, 1] || raise(Failed, "#{name} has no build id")
    end

    # @return [Boolean] neither debug information nor a table of symbols but the dynamic one
    def stripped? = !readelf("--sections").match?(/ \.(debug_(info|line)|symtab) /)

    # @return [Boolean] its debug information says which line an instruction is of
    def lines? = readelf("--sections").include?(" .debug_line ")

    # Folders of the machine that built it, and other words that must not be in it.
    #
    # @param words [Array<String>]
    # @return [Array<String>] those that are
    def traces_of(words)
      bytes = File.binread(path)
      words.select { |word| bytes.include?(word.b) }
    end

    private

    def readelf(option)
      # Of debug files, whose segments are empty, it complains on standard error.
      text, _, status = Open3.capture3({ "LC_ALL" => "C" }, "readelf", "--wide", option, path)
      raise Failed, "readelf cannot read #{path}" unless status.success?

      text
    end
  end
end
