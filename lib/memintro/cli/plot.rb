# frozen_string_literal: true

require_relative "command"
require_relative "tool"

module Memintro
  module CLI
    # `memintro plot`: checks the command line, then becomes `memintro-tool`, which plots.
    class Plot < Command
      # What its help begins with.
      BANNER = <<~TEXT
        Usage: memintro plot [options] FILE...

        Plots the MEMORY lines of a log over time, with a curve for each process: RSS, live objects, live bytes of
        malloc, GC time. Memintro.log_every and Memintro::Middleware write these lines, as logfmt or JSON. A logger
        may put text in front of them. Other lines are skipped and counted. FILE may be compressed by gzip; - is
        standard input. Without -o, the plot is drawn in the terminal.

      TEXT
      # Endings of an output file's name, and their formats.
      FORMATS = { ".svg" => "svg", ".png" => "png", ".html" => "html", ".htm" => "html", ".txt" => "text" }.freeze
      # Values of --format.
      NAMES = %w[svg png html text].freeze

      # @return [OptionParser]
      def options
        super do |parser|
          parser.separator("Options:")
          parser.on("-o", "--output FILE", "write the plot to FILE, whose name ends in .svg, .png, .html or .txt;",
                    "FILE - is standard output") { |file| @output = file }
          parser.on("--format FORMAT", "svg, png, html or text; default: by the name of FILE") do |name|
            @format = format_named(name)
          end
          parser.on("-f", "--follow", "keep reading as the log grows, is rotated or is truncated, and redraw") do
            @follow = true
          end
        end
      end

      # @param files [Array<String>]
      # @return [Integer] never, if all is well
      def run(files)
        raise UsageError, "give a log to draw, or - for standard input (memintro plot --help)" if files.empty?
        raise UsageError, "--follow cannot go on reading standard input; give files" if @follow && files.include?("-")

        check(files) unless @follow
        check_output(files)
        out = @output == "-" ? nil : @output
        Tool.become("plot", format, out.to_s, @follow ? "1" : "0", *files)
      end

      private

      def format_named(name)
        return name if NAMES.include?(name)

        raise UsageError, "--format is #{name.inspect}; it must be svg, png, html or text"
      end

      def format
        return @format || "text" if @output.nil? || @output == "-"

        @format || FORMATS.fetch(File.extname(@output).downcase) do
          raise UsageError, "--output is #{@output.inspect}; its name must end in .svg, .png, .html or .txt, or " \
                            "--format must say what to write"
        end
      end

      def check(files)
        folder = files.find { |file| File.directory?(file) }
        raise Failure, "#{folder}: is a folder; give the log files in it" if folder
      end

      # Compares files, not names, because the plot would replace the log for good.
      def check_output(files)
        return if @output.nil? || @output == "-"

        log = files.find { |file| File.identical?(file == "-" ? $stdin : file, @output) }
        return unless log

        read = log == "-" ? "standard input" : log
        raise Failure, "--output #{@output} is #{read}, the log itself, and the plot would replace it; give " \
                       "another name"
      end
    end
  end
end
