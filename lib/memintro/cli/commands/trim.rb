# frozen_string_literal: true

require_relative "../remote"
require_relative "../../support/allocators"
require_relative "../../support/units"

module Memintro
  module CLI
    # `memintro trim PID`.
    class Trim < Remote
      # The name of the command.
      NAME = "trim"
      # Its purpose, for the list of commands.
      SUMMARY = "make a running process return free memory to the kernel"
      # The beginning of its help.
      BANNER = <<~TEXT
        Usage: memintro trim [options] PID|NAME…

        Makes the allocator of a running process (glibc, #{Memintro::Allocators::NAMES}) return free memory to
        the kernel, and shows RSS before and after. Threads that allocate wait meanwhile.

        #{TARGET}
      TEXT
      # The command of the protocol that it sends.
      COMMAND = "trim"

      # @return [OptionParser]
      def options
        super do |parser|
          parser.on("--compact", "run GC.compact before") { @compact = true }
        end
      end

      private

      def arguments
        @compact ? { compact: true } : {}
      end

      def show(listener, answer)
        given = answer["given_back_bytes"]
        said = given.positive? ? "gave back #{Units.bytes(given)}" : "gave nothing back"
        @out.puts("#{who(listener)} #{said}: RSS #{Units.bytes(answer['rss_before'])} -> #{Units.bytes(answer['rss'])}")
      end
    end
  end
end
