# frozen_string_literal: true

require_relative "../support/units"

module Memintro
  module CLI
    # Warns, before a process is copied, that it will stop for long: the kernel copies each of its mappings, and a
    # program with many fibers or threads has tens of thousands. For commands that define `copies`.
    module LongStop
      # With fewer mappings there is no warning.
      MANY = 10_000
      # Approximate time to copy a mapping with one or two private pages.
      MICROSECONDS = 8
      # The paragraph of the commands' help.
      TEXT = <<~TEXT.chomp.freeze
        While the kernel copies the process, it stands still for 10 to 100 ms for each GiB, and for 5 to 10 ms for
        each 1,000 mappings, of which each fiber and each thread has two. With 10,000 and more, a line on standard
        error says so first.
      TEXT
      private_constant :MICROSECONDS

      private

      # @return [Integer] times that the process is copied
      def copies = 1

      # @param pid [Integer]
      def announce_stop(pid)
        count = File.foreach("/proc/#{pid}/maps").count
        return if count < MANY

        seconds = count * copies * MICROSECONDS / 1e6
        $stderr.puts("memintro: process #{pid} has #{Units.count(count)} mappings (each fiber and thread has two): " \
                     "it will stand still for about #{format('%.1f', seconds)} s#{" in #{copies} parts" if copies > 1}")
      rescue SystemCallError
        nil # unknown for a process of another user
      end
    end
  end
end
