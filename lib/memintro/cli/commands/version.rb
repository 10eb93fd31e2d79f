# frozen_string_literal: true

require_relative "../command"

module Memintro
  module CLI
    # `memintro version`.
    class Version < Command
      # The name of the command.
      NAME = "version"
      # Its purpose, for the list of commands.
      SUMMARY = "print the version of memintro"
      # The beginning of its help.
      BANNER = <<~TEXT
        Usage: memintro version

        Prints the version of memintro, as --version does.
      TEXT

      # @param words [Array<String>] must be empty
      # @return [Integer]
      def run(words)
        raise UsageError, "version takes no arguments (#{words.first.inspect})" unless words.empty?

        @out.puts("memintro #{VERSION}")
        0
      end
    end
  end
end
