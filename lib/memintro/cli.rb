# frozen_string_literal: true

require "optparse"
require_relative "support/advice"
require_relative "support/settings"
require_relative "version"

module Memintro
  # The `memintro` command. Each subcommand is an object with `options` and `run`, without exit codes. Only {start}
  # prints errors and returns the exit code: 0 for success, 1 for failure, 2 for wrong usage, and like a shell 126 and
  # 127 if a command to run is not executable or does not exist. If the reader closes the pipe, that is a success.
  #
  # Files are loaded only when they are needed, because `memintro run` adds its own loading to the start of every
  # program.
  module CLI
    Settings.never_listen

    # The command line is wrong.
    class UsageError < StandardError; end

    # The command failed; `exit_code` says how.
    class Failure < StandardError
      # @return [Integer]
      attr_reader :exit_code

      # @param message [String]
      # @param exit_code [Integer]
      def initialize(message, exit_code = 1)
        @exit_code = exit_code
        super(message)
      end
    end

    # Each command is a file here, with its name, its purpose and its options.
    FOLDER = File.join(__dir__, "cli/commands")
    private_constant :FOLDER

    # @return [Array<String>] the names of all commands
    def self.names
      Dir.children(FOLDER).map { |file| file.delete_suffix(".rb").tr("_", "-") }.sort
    end

    # @param argv [Array<String>]
    # @param out [IO]
    # @param err [IO]
    # @return [Integer] the exit code
    def self.start(argv, out: $stdout, err: $stderr)
      code = Advice.naming_commands { dispatch(argv.dup, out) }
      out.flush
      code
    rescue Errno::EPIPE
      silence(out)
      0
    rescue UsageError, OptionParser::ParseError => e
      complain(err, e.message.strip)
      2
    rescue Failure => e
      complain(err, e.message)
      e.exit_code
    rescue Interrupt
      130
    rescue StandardError, LoadError => e
      complain(err, e.message)
      1
    end

    # Messages contain names from outside, which could contain control sequences of the terminal.
    # @api private
    # @param err [IO]
    # @param message [String]
    # @return [true]
    def self.complain(err, message)
      require_relative "support/names"
      err.puts("memintro: #{Names.lines(message)}")
      true
    end

    # @return [Integer]
    def self.dispatch(argv, out)
      name = argv.shift
      case name
      when nil then raise UsageError, "no command given\n\n#{help}"
      when "-h", "--help", "help" then show_help(argv, out)
      when "-v", "--version" then command("version").new(out).call(argv)
      else command(name).new(out).call(argv)
      end
    end
    private_class_method :dispatch

    # @param name [String]
    # @return [Class]
    # @raise [UsageError] if there is no such command
    def self.command(name)
      unless names.include?(name)
        raise UsageError, "there is no command #{name.inspect}#{suggestion(name)}; " \
                          "the commands are #{names.join(', ')} (memintro --help)"
      end

      require File.join(FOLDER, "#{name.tr('-', '_')}.rb")
      Command.named(name)
    end

    def self.suggestion(name)
      meant = similar(name)
      return ", did you mean #{meant.inspect}?" if meant
      return "" unless program?(name)

      "; to run a program, write memintro run -- #{name}"
    end
    private_class_method :suggestion

    def self.program?(name)
      ENV["PATH"].to_s.split(":").any? { |folder| File.executable?(File.join(folder, name)) && name != "" }
    end
    private_class_method :program?

    def self.similar(name)
      require "did_you_mean"
      DidYouMean::SpellChecker.new(dictionary: names).correct(name).first
    rescue LoadError
      nil
    end
    private_class_method :similar

    def self.show_help(argv, out)
      return say(out, help) if argv.empty?

      command(argv.first).new(out).call(["--help"])
    end
    private_class_method :show_help

    def self.help
      commands = names.map { |name| [name, command(name)::SUMMARY] }
      width = names.map(&:size).max
      <<~HELP
        memintro #{VERSION}: shows which line of Ruby code owns the memory of a process

        Usage: memintro COMMAND [options]

        #{commands.map { |name, summary| "  #{name.ljust(width)}  #{summary}" }.join("\n")}

        Run memintro COMMAND --help for its options. To begin with:
          memintro run -- ruby app.rb
      HELP
    end
    private_class_method :help

    def self.say(out, text)
      out.puts(text)
      0
    end
    private_class_method :say

    # Buffered output would fail again when Ruby closes the stream.
    def self.silence(out)
      out.reopen(File::NULL, "w") if out.respond_to?(:reopen) && out.respond_to?(:fileno)
    rescue IOError, SystemCallError
      nil
    end
    private_class_method :silence
  end
end
