# frozen_string_literal: true

require "open3"

module Native
  # An error of the gem or of this machine, in words.
  class Failed < StandardError; end

  # A compiled file, examined with readelf.
  class Binary
    # Libraries that every program with glibc has, and libgcc's unwinder, which every Debian has.
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

    # Libraries that it needs and that a machine may not have.
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

    # Searches it for folders of the machine that built it, and for other words that must not be in it.
    #
    # @param words [Array<String>]
    # @return [Array<String>] the words that were found
    def traces_of(words)
      bytes = File.binread(path)
      words.select { |word| bytes.include?(word.b) }
    end

    private

    def readelf(option)
      # readelf complains on standard error about debug files, because their segments are empty.
      text, _, status = Open3.capture3({ "LC_ALL" => "C" }, "readelf", "--wide", option, path)
      raise Failed, "readelf cannot read #{path}" unless status.success?

      text
    end
  end
end
