# frozen_string_literal: true

require_relative "command"
require_relative "launch"
require_relative "live_snapshot"

module Memintro
  module CLI
    # What `snapshot`, `diff`, `iseqs` and `histogram` share: each looks at saved files, or at a program that it starts.
    # What stands after `--` is the program. Nothing is preloaded: only a file is required in front of the program.
    class Look < Command
      # Formats of the subcommand; the first is the default.
      FORMATS = %w[text json].freeze
      # Rows of each list unless told otherwise.
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
          parser.on("--top N", "rows of each list, or all; default #{self.class::TOP} in text, all in json") do |text|
            @top = text.match?(/\A[1-9]\d*\z/) || text == "all" ? text : wrong("--top", text, "a number from 1, or all")
          end
          parser.on("--json", "as --format json") { @format = "json" }
          parser.on("--every SECONDS", "with a CMD: look so often as well as at its end") do |text|
            @every = seconds("--every", text)
          end
          parser.on("--timeout SECONDS", "with a PID: wait so long for an answer; default " \
                                         "#{LiveSnapshot::PATIENCE_SECONDS}") do |text|
            @timeout = seconds("--timeout", text).to_f
          end
          yield parser if block_given?
        end
      end

      # @param operands [Array<String>] files
      # @return [Integer]
      def run(operands)
        return start(operands) if @command
        raise UsageError, "--every needs a program to run: memintro #{name} --every 10 -- CMD" if @every

        require_relative "../../memintro"
        show(operands)
        0
      end

      private

      def name
        self.class.name.split("::").last.downcase
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

      def seconds(flag, text)
        value = Float(text, exception: false)
        value&.positive? && value&.finite? ? text : wrong(flag, text, "a number of seconds above 0")
      end

      def wrong(flag, value, allowed)
        raise UsageError, "#{flag} is #{value.inspect}; it must be #{allowed}"
      end

      def start(operands)
        unless operands.empty?
          raise UsageError, "give either a file or a program to run, not #{operands.first} and -- #{@command.join(' ')}"
        end
        raise UsageError, "no command to run: memintro #{name} [options] -- CMD" if @command.empty?

        check_output
        launch = Launch.new({})
        launch.become(@command, Settings.disabled? ? {} : environment(launch))
      end

      def environment(launch)
        { **variables.compact.to_h { |key, value| ["MEMINTRO_LOOK_#{key}", value.to_s] },
          "MEMINTRO_FIRST_PID" => Process.pid.to_s,
          "RUBYOPT" => Launch.before(launch.require_flag(Paths::LOOK), ENV["RUBYOPT"], " ") }
      end

      # The command may change its folder.
      def variables
        { COMMAND: name, OUT: @output && File.expand_path(@output), EVERY: @every,
          FORMAT: @format || self.class::FORMATS[0], TOP: @top || default_top }
      end

      def default_top
        @format == "json" ? "all" : self.class::TOP.to_s
      end

      def top
        chosen = @top || default_top
        chosen == "all" ? nil : Integer(chosen, 10)
      end

      # Told now, not at the program's end.
      def check_output
        return unless @output

        folder = File.dirname(File.expand_path(@output))
        raise Failure, "--output #{@output}: there is no folder #{folder}" unless File.directory?(folder)
        raise Failure, "--output #{@output}: folder #{folder} cannot be written to" unless File.writable?(folder)
        raise Failure, "--output #{@output} is a folder; give a file in it" if File.directory?(@output)
      end

      # @param operand [String] a file, or the PID or NAME of a process
      # @return [Memintro::Snapshot]
      def snapshot(operand)
        LiveSnapshot.process?(operand) ? live_snapshot(operand) : Memintro::Snapshot.load(operand)
      end

      def live_snapshot(word, settle: false)
        LiveSnapshot.take(word, live_parts, settle: settle, patience: @timeout)
      end

      # What is asked of a running process.
      def live_parts
        ["all"]
      end

      def one(operands)
        return operands.first if operands.size == 1

        raise UsageError, "give one FILE, or a program to run: memintro #{name} [options] FILE|PID | -- CMD"
      end

      # @yieldparam io [#write]
      def put(what)
        return what.write(@out, format: (@format || self.class::FORMATS[0]).to_sym, top: top) unless @output

        require "stringio"
        text = StringIO.new
        what.write(text, format: (@format || self.class::FORMATS[0]).to_sym, top: top)
        Memintro::Snapshot::Saved.write(@output, text.string)
      end
    end
  end
end
