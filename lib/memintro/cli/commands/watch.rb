# frozen_string_literal: true

require_relative "../remote"
require_relative "../tool"

module Memintro
  module CLI
    # `memintro watch`: finds the process and checks that it answers, then becomes `memintro-tool`, which shows it.
    class Watch < Command
      include Targets
      # The name of the command.
      NAME = "watch"
      # Its purpose, for the list of commands.
      SUMMARY = "show a running process in the terminal, live"
      # The beginning of its help.
      BANNER = <<~TEXT
        Usage: memintro watch [options] PID|NAME

        Shows a running process in the terminal, live: RSS, the top call sites and their growth, and GC. Keys start
        and stop tracking, set the mark, and sort. If the process was given by NAME and is restarted, the new one is
        shown.

        #{Remote::TARGET}

        Options:
      TEXT
      # Prints the PID and socket of the process, and ends.
      PRINT_TARGET = "--print-target"
      private_constant :PRINT_TARGET

      # @return [OptionParser]
      def options
        super do |parser|
          parser.on("--every SECONDS", "time between two updates; default 1") do |text|
            @seconds = seconds("--every", text)
          end
          user_option(parser)
        end
      end

      # @param argv [Array<String>]
      # @return [Integer] never, if all is well
      def call(argv)
        # For the tool, when the process has ended. No user types it, so the help does not describe it.
        @print = argv.first == PRINT_TARGET
        super(@print ? argv.drop(1) : argv)
      end

      # @param words [Array<String>] one PID or NAME
      # @return [Integer] never, if all is well
      def run(words)
        raise Candidates.missing("give the PID or NAME of one process:", users) unless words.size == 1

        check_terminal unless @print
        listener = Control::Directory.new(users: users).find(words.first)
        # An error must be printed before the tool takes over the screen.
        listener.client.ask_json("info")
        return print_target(listener) if @print

        Tool.become("watch", listener.pid.to_s, listener.path, (@seconds || 1).to_f.to_s, *finder(words.first))
      rescue ControlError => e
        raise Failure, e.message
      end

      private

      def check_terminal
        return if $stdin.tty? && @out.tty? && ENV["TERM"] != "dumb"

        raise Failure, "watch needs a terminal as standard input and output; for programs, use memintro top --json PID"
      end

      def print_target(listener)
        @out.puts("#{listener.pid} #{listener.path}")
        0
      end

      # A PID is not looked up again, because another process may have it later.
      def finder(word)
        return [] if word.match?(/\A\d+\z/)

        require "rbconfig"
        chosen = Array(users).flat_map { |user| ["--user", user.to_s] }
        command = File.expand_path("../../../../exe/memintro", __dir__)
        [RbConfig.ruby, command, NAME, PRINT_TARGET, *chosen, "--", word]
      end
    end
  end
end
