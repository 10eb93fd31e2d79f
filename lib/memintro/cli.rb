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

    autoload :Run, File.join(__dir__, "cli/run.rb")
    autoload :Env, File.join(__dir__, "cli/env.rb")
    autoload :Report, File.join(__dir__, "cli/report.rb")
    autoload :Snapshot, File.join(__dir__, "cli/snapshot.rb")
    autoload :Diff, File.join(__dir__, "cli/diff.rb")
    autoload :Iseqs, File.join(__dir__, "cli/iseqs.rb")
    autoload :Histogram, File.join(__dir__, "cli/histogram.rb")
    autoload :Doctor, File.join(__dir__, "cli/doctor.rb")
    autoload :Plot, File.join(__dir__, "cli/plot.rb")
    autoload :Requests, File.join(__dir__, "cli/requests.rb")
    autoload :HeapFile, File.join(__dir__, "cli/heap_file.rb")
    autoload :Rss, File.join(__dir__, "cli/rss.rb")
    autoload :Watch, File.join(__dir__, "cli/watch.rb")
    autoload :Ps, File.join(__dir__, "cli/ps.rb")
    autoload :Start, File.join(__dir__, "cli/start.rb")
    autoload :Stop, File.join(__dir__, "cli/stop.rb")
    autoload :Mark, File.join(__dir__, "cli/mark.rb")
    autoload :Clear, File.join(__dir__, "cli/clear.rb")
    autoload :Top, File.join(__dir__, "cli/top.rb")
    autoload :Collect, File.join(__dir__, "cli/gc.rb")
    autoload :AccountOf, File.join(__dir__, "cli/account.rb")
    autoload :LeaksOf, File.join(__dir__, "cli/leaks.rb")
    autoload :Allocators, File.join(__dir__, "cli/allocators.rb")
    autoload :HeapDumpOf, File.join(__dir__, "cli/heap_dump.rb")
    autoload :HoldersOf, File.join(__dir__, "cli/holders.rb")
    autoload :HuntIn, File.join(__dir__, "cli/hunt.rb")
    autoload :Version, File.join(__dir__, "cli/version.rb")
    autoload :Trim, File.join(__dir__, "cli/trim.rb")

    # Subcommands, their classes and their purposes.
    COMMANDS = {
      "run" => [:Run, "run a command with tracking on, and report when it ends"],
      "env" => [:Env, "print the environment variables that `run` sets"],
      "plot" => [:Plot, "plot the MEMORY lines of a log: RSS, live objects, malloc and GC over time"],
      "requests" => [:Requests, "rank requests by the memory they allocate, from the MEMORY lines of a log"],
      "report" => [:Report, "show a saved report, a raw dump, or the report of a running process"],
      "rss" => [:Rss, "show the RSS, PSS and USS of processes, or the peak of a command"],
      "account" => [:AccountOf, "show where the resident memory is: Ruby, malloc, fragmentation, stacks, files"],
      "leaks" => [:LeaksOf, "find blocks of malloc that nothing points to, by line and size"],
      "allocators" => [:Allocators, "run a command once per allocator, and compare time, CPU and RSS"],
      "trim" => [:Trim, "make a running process return free memory to the kernel"],
      "hunt" => [:HuntIn, "let a running process find what grows, and show its findings"],
      "holders" => [:HoldersOf, "show what keeps objects alive in a running process"],
      "heap" => [:HeapFile, "read a heap dump: classes, what keeps objects alive, leaks, a page"],
      "heap-dump" => [:HeapDumpOf, "write all objects of a running process into a file, for heapy and the like"],
      "snapshot" => [:Snapshot, "save what is in a process: memory, GC, objects by class, compiled code"],
      "diff" => [:Diff, "show what grew between snapshots, in a running process, or during a command"],
      "iseqs" => [:Iseqs, "show Ruby's compiled code in memory, by file or by line"],
      "histogram" => [:Histogram, "show all objects by class"],
      "doctor" => [:Doctor, "check what works on this machine"],
      "ps" => [:Ps, "list the running processes that listen"],
      "start" => [:Start, "start tracking in a running process"],
      "stop" => [:Stop, "stop tracking in a running process"],
      "mark" => [:Mark, "set the mark from which growth is counted"],
      "clear" => [:Clear, "clear the figures of a running process"],
      "top" => [:Top, "show the top call sites of a running process"],
      "watch" => [:Watch, "show a running process in the terminal, live"],
      "gc" => [:Collect, "run a garbage collection in a running process"],
      "version" => [:Version, "print the version of memintro"]
    }.freeze

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

    # @return [Class]
    def self.command(name)
      entry = COMMANDS[name]
      return const_get(entry[0]) if entry

      raise UsageError, "there is no command #{name.inspect}#{suggestion(name)}; " \
                        "the commands are #{COMMANDS.keys.join(', ')} (memintro --help)"
    end
    private_class_method :command

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
      DidYouMean::SpellChecker.new(dictionary: COMMANDS.keys).correct(name).first
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
      width = COMMANDS.keys.map(&:size).max
      <<~HELP
        memintro #{VERSION}: shows which line of Ruby code owns the memory of a process

        Usage: memintro COMMAND [options]

        #{COMMANDS.map { |name, (_, purpose)| "  #{name.ljust(width)}  #{purpose}" }.join("\n")}

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
