# frozen_string_literal: true

require "stringio"
require_relative "command"
require_relative "launch"
require_relative "live_inspection"
require_relative "printed"

module Memintro
  module CLI
    # The base of `snapshot`, `diff`, `iseqs` and `histogram`: each reads saved files, running processes, or a program
    # that it starts. The program follows `--`. Nothing is preloaded; only a file is required before the program.
    #
    # A subcommand returns its text for a snapshot from `content(snapshot, name, pid:)`.
    class Inspection < Command
      include LiveInspection

      # Formats of the subcommand; the first is the default.
      FORMATS = %w[text json].freeze
      # Formats that cannot hold several snapshots in one file.
      SEPARATE = %w[html].freeze
      # In the help, because this process becomes CMD and cannot print it later.
      SILENT = <<~TEXT

        Each Ruby process of CMD takes the snapshot of itself when it ends. If CMD starts no Ruby, or if its processes
        end by exit! or by a signal like KILL, nothing is shown and no file is written. The exit status is always
        CMD's.
      TEXT
      private_constant :SILENT

      # Default number of rows of each list.
      TOP = 20

      # @param argv [Array<String>]
      # @return [Integer] the exit code
      def call(argv)
        split = argv.index("--")
        @command = argv.drop(split + 1) if split
        super(split ? argv.take(split) : argv)
      end

      # @return [OptionParser]
      def options
        super do |parser|
          parser.separator("\nOptions:")
          parser.on("-o", "--output FILE", *output_help) { |file| @output = file }
          parser.on("--format FORMAT", "#{self.class::FORMATS.first} (default), #{rest_of_formats}") do |format|
            @format = one_of("--format", format, self.class::FORMATS)
          end
          parser.on("-n", "--top N",
                    "rows of each list, or all; default #{self.class::TOP} in text, all in json") do |text|
            @top = text.match?(/\A[1-9]\d*\z/) || text == "all" ? text : wrong("--top", text, "a number from 1, or all")
          end
          parser.on("--json", "as --format json") { @format = "json" }
          parser.on("--every SECONDS", "with a CMD: also take a snapshot every SECONDS") do |text|
            @every = seconds("--every", text)
          end
          live_options(parser)
          yield parser if block_given?
        end.tap { |parser| parser.separator(SILENT) }
      end

      # @param operands [Array<String>] files, or PIDs and names
      # @return [Integer]
      def run(operands)
        return start(operands) if @command
        raise UsageError, "--every needs a program to run: memintro #{name} --every 10 -- CMD" if @every

        require_relative "../../memintro"
        return inspect_live(operands) if live?(operands)

        show(operands)
        0
      end

      private

      def name
        self.class::NAME
      end

      def output_help
        ["write to FILE; default: standard output, and for a CMD standard error"]
      end

      def rest_of_formats
        self.class::FORMATS.drop(1).join(" or ")
      end

      def one_of(flag, value, allowed)
        allowed.include?(value) ? value : wrong(flag, value, allowed.join(" or "))
      end

      def wrong(flag, value, allowed)
        raise UsageError, "#{flag} is #{value.inspect}; it must be #{allowed}"
      end

      def start(operands)
        if @workers
          raise UsageError, "--workers needs the PID or NAME of a running process; of a program that is started, all " \
                            "Ruby processes are looked at anyway"
        end
        unless operands.empty?
          raise UsageError, "give either a file or a program to run, not #{operands.first} and -- #{@command.join(' ')}"
        end
        raise UsageError, "no command to run: memintro #{name} [options] -- CMD" if @command.empty?

        check_output
        launch = Launch.new({})
        launch.become(@command, Brake.on? ? {} : environment(launch))
      end

      def environment(launch)
        { **variables.compact.to_h { |key, value| ["MEMINTRO_LAUNCHED_#{key}", value.to_s] },
          OutputOwner::VARIABLES[:appointed] => Process.pid.to_s,
          "RUBYOPT" => Paths.before(launch.require_flag(Paths::LAUNCHED), ENV["RUBYOPT"], " ") }
      end

      # Absolute, because the command may change its folder.
      def variables
        { COMMAND: name, OUT: @output && absolute(@output), EVERY: @every&.to_s,
          FORMAT: format_name, TOP: @top || default_top }
      end

      # @return [String]
      def format_name
        @format || self.class::FORMATS[0]
      end

      def default_top
        format_name == "json" ? "all" : self.class::TOP.to_s
      end

      def top
        chosen = @top || default_top
        chosen == "all" ? nil : Integer(chosen, 10)
      end

      # Checked now rather than at the end of the program.
      def check_output
        return unless @output

        folder = File.dirname(absolute(@output))
        raise Failure, "--output #{@output}: there is no folder #{folder}" unless File.directory?(folder)
        raise Failure, "--output #{@output}: folder #{folder} cannot be written to" unless File.writable?(folder)
        raise Failure, "--output #{@output} is a folder; give a file in it" if File.directory?(@output)
      end

      # @param operand [String] a file, or the PID or NAME of a process
      # @return [Memintro::Snapshot]
      def snapshot(operand)
        return Memintro::Snapshot.load(operand) unless LiveInspection.process?(operand)

        live_snapshot(Control::Directory.new(users: users).find(operand))
      rescue ControlError => e
        raise Failure, e.message
      end

      def show(operands)
        file = one(operands)
        put(content(Memintro::Snapshot.load(file), file))
      end

      def one(operands)
        return operands.first if operands.size == 1

        text = "give one FILE, or a program to run: memintro #{name} [options] FILE|PID… | -- CMD"
        raise operands.empty? ? Candidates.missing("#{text}, or one of these processes:", users) : UsageError.new(text)
      end

      # @param what [#write]
      def put(what)
        @output ? save(what, @output) : what.write(Printed.new(@out, format_name), **form)
      end

      def save(what, file)
        Memintro::Snapshot::Saved.write(file, written(what))
      end

      def written(what)
        text = StringIO.new
        what.write(text, **form)
        text.string
      end

      # Arguments of `write`.
      def form
        { format: format_name.to_sym, top: top }
      end
    end
  end
end
