# frozen_string_literal: true

begin
  require "bigdecimal"
rescue LoadError
  # A bundled gem since Ruby 3.4, which a bundle may lack. Bytes are Rational then.
end
require_relative "../memintro"

# Returns what the gem get_process_mem returns, with its names and types, from a file that stays open: for code that was
# written for that gem. If the gem is loaded already, it stays; after this file, `require "get_process_mem"` does
# nothing. Require it when the program starts, because Ruby cannot require files in a signal handler.
#
# @example
#   require "memintro/get_process_mem"
#   GetProcessMem.new.mb   # => 31.4453125
unless defined?(GetProcessMem)
  # Resident memory of a process, as BigDecimal bytes (Rational where there is no BigDecimal) or Float KiB, MiB and GiB.
  # As with the gem of that name, a process that does not exist or cannot be read has 0.
  class GetProcessMem
    exact = defined?(BigDecimal) ? method(:BigDecimal) : method(:Rational)
    # Bytes of a KiB.
    KB_TO_BYTE = exact[1024]
    # Bytes of a MiB.
    MB_TO_BYTE = exact[1_048_576]
    # Bytes of a GiB.
    GB_TO_BYTE = exact[1_073_741_824]
    # Bytes by unit, in lower case.
    CONVERSION = { "kb" => KB_TO_BYTE, "mb" => MB_TO_BYTE, "gb" => GB_TO_BYTE }.freeze
    # What is added to each figure of a smaps file.
    ROUND_UP = exact["0.5"]
    # This file is for Linux.
    RUNS_ON_WINDOWS = false
    # See {RUNS_ON_WINDOWS}.
    RUNS_ON_DARWIN = nil

    # @return [Object] the process that was asked for
    attr_reader :pid

    # @param pid [Integer, String] also `"self"`; what is no process has no memory
    def initialize(pid = Process.pid)
      @pid = pid
    end

    # @return [Boolean] whether /proc knows the process
    def linux?
      File.exist?("/proc/#{@pid}/status")
    end

    # @return [BigDecimal] resident memory now
    def bytes
      exact(resident)
    end

    # @param bytes [Numeric]
    # @return [Float] in KiB
    def kb(bytes = self.bytes)
      (bytes / KB_TO_BYTE).to_f
    end

    # @param bytes [Numeric]
    # @return [Float] in MiB
    def mb(bytes = self.bytes)
      (bytes / MB_TO_BYTE).to_f
    end

    # @param bytes [Numeric]
    # @return [Float] in GiB
    def gb(bytes = self.bytes)
      (bytes / GB_TO_BYTE).to_f
    end

    # @param file [#each_line, nil] what to read instead of the process's `status`: a Pathname, File or StringIO
    # @return [BigDecimal, Integer, nil] as {bytes}; of a file its VmRSS, nil if it has none, 0 if it cannot be read
    def linux_status_memory(file = nil)
      return bytes unless file

      words = file.each_line.find { |line| line.start_with?("VmRSS") }.to_s.split
      CONVERSION.fetch(words[2].downcase, 0) * words[1].to_i if words.size == 3
    rescue Errno::EACCES, Errno::ENOENT
      0
    end

    # @param file [#each_line, nil] what to read instead of the process's `smaps`
    # @return [BigDecimal, Integer, nil] as {bytes}: the kernel's own sum, so that not every mapping has to be read; of
    #   a file the sum of its Rss, each rounded up; nil if it has none, 0 if it may not be read
    def linux_memory(file = nil)
      return bytes unless file

      found = file.each_line.filter_map { |line| line.match(/\ARss.*?(\d+(?:\.\d+)?)\s+(\w\w)/) }
      found.sum { |figure| (exact(figure[1]) + ROUND_UP) * CONVERSION.fetch(figure[2].downcase, 0) } if found.any?
    rescue Errno::EACCES
      0
    end

    # @return [BigDecimal] as {bytes}: no `ps` is run
    def ps_memory
      bytes
    end

    # @return [String]
    def inspect
      now = bytes
      exact = now.is_a?(Rational) ? now.to_i : now
      format("#<%<name>s:0x%<id>08x @mb=%<mb>s @gb=%<gb>s @kb=%<kb>s @bytes=%<bytes>s>",
             name: self.class, id: object_id * 2, mb: mb(now), gb: gb(now), kb: kb(now), bytes: exact)
    end

    private

    def exact(number)
      defined?(BigDecimal) ? BigDecimal(number) : Rational(number)
    end

    def resident
      number = @pid == "self" ? Memintro::Native.kernel_pid : Integer(@pid.to_s, 10, exception: false)
      return 0 unless number
      return Memintro.rss if number == Memintro::Native.kernel_pid

      Memintro::ProcessMemory.new(number).rss
    rescue Memintro::Error, ArgumentError
      0
    end
  end

  $LOADED_FEATURES << "get_process_mem.rb"
end
