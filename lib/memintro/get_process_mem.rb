# frozen_string_literal: true

require "bigdecimal"
require_relative "../memintro"

# Answers what the gem get_process_mem answers, with its names and types, from a file that stays open: for code that was
# written for that gem. Where the gem itself is loaded already, it stays; after this file, `require "get_process_mem"`
# does nothing.
#
# @example
#   require "memintro/get_process_mem"
#   GetProcessMem.new.mb   # => 31.4453125
unless defined?(GetProcessMem)
  # Resident memory of a process, as BigDecimal bytes or Float KiB, MiB and GiB. As with the gem of that name, a process
  # that is not there (any more) or not to be seen has none.
  class GetProcessMem
    # Bytes of a KiB.
    KB_TO_BYTE = BigDecimal(1024)
    # Bytes of a MiB.
    MB_TO_BYTE = BigDecimal(1_048_576)
    # Bytes of a GiB.
    GB_TO_BYTE = BigDecimal(1_073_741_824)

    # @return [Integer] the process that was asked for
    attr_reader :pid

    # @param pid [Integer, String]
    def initialize(pid = Process.pid)
      @pid = pid
      @number = Integer(pid)
    end

    # @return [Boolean] whether /proc knows the process
    def linux?
      File.exist?("/proc/#{@number}/status")
    end

    # @return [BigDecimal] resident memory now
    def bytes
      BigDecimal(resident)
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

    # @return [BigDecimal] as {bytes}
    def linux_status_memory
      bytes
    end

    # @return [BigDecimal] as {bytes}: the kernel's own sum, so that not every mapping has to be read
    def linux_memory
      bytes
    end

    # @return [BigDecimal] as {bytes}: no `ps` is run
    def ps_memory
      bytes
    end

    # @return [String]
    def inspect
      now = bytes
      format("#<%<name>s:0x%<id>08x @mb=%<mb>s @gb=%<gb>s @kb=%<kb>s @bytes=%<bytes>s>",
             name: self.class, id: object_id * 2, mb: mb(now), gb: gb(now), kb: kb(now), bytes: now)
    end

    private

    def resident
      return Memintro.rss if @number == Memintro::Native.kernel_pid

      Memintro::ProcessMemory.new(@number).rss
    rescue Memintro::Error, ArgumentError
      0
    end
  end

  $LOADED_FEATURES << "get_process_mem.rb"
end
