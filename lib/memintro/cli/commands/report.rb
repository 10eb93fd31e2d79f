# frozen_string_literal: true

require "stringio"
require_relative "../figures"
require_relative "../../report/report"

module Memintro
  module CLI
    # `memintro report`: shows a saved report or raw dump, or the report of a running process.
    class Report < Figures
      # The name of the command.
      NAME = "report"
      # Its purpose, for the list of commands.
      SUMMARY = "show a saved report, a raw dump, or the report of a running process"
      # The beginning of its help.
      BANNER = <<~TEXT
        Usage: memintro report [options] FILE…
               memintro report [options] PID|NAME…

        Shows each FILE: a JSON report, or the raw dump of a process that ended by exit! or by a fatal signal. - is
        standard input. With a PID or NAME, shows the report of a running process; --workers adds up the figures of
        the process and of all listening processes below it.

        #{TARGET}
      TEXT

      # Means standard input.
      STANDARD_INPUT = "-"

      # @return [OptionParser]
      def options
        super do |parser|
          parser.on("--html", "as --format html: a page with a flame graph, of one FILE or process") do
            @given[:format] = :html
          end
          parser.on("-o", "--output FILE", "write the page to FILE; default: standard output") { |file| @output = file }
        end
      end

      # @param words [Array<String>] files, or PIDs and names
      # @return [Integer]
      def run(words)
        raise Candidates.missing("give one FILE to show, or the PID or NAME of a process:", users) if words.empty?

        check_page(words)
        files, processes = words.partition { |word| file?(word) }
        return show(files) if processes.empty? && !html?
        return page(files.first) if html? && files.any?
        unless files.empty?
          raise UsageError, "#{files.first} is a file, and #{processes.first} is not: give files alone, or processes"
        end

        return live_page(targets(words)) if html?

        figures(targets(words), default_top: 20)
      end

      private

      # @return [Boolean]
      def html?
        !@json && (given[:format] || ENV[Settings[:format].variable]).to_s == "html"
      end

      def check_page(words)
        raise UsageError, "-o is for a page: add --html" if @output && !html?
        return unless html?
        raise UsageError, "a page shows one FILE or process, not #{words.size}" if words.size > 1
        return unless @output.nil? && @out.respond_to?(:tty?) && @out.tty?

        raise UsageError, "a page is not for a terminal: give -o FILE, such as -o memory.html"
      end

      # @param file [String]
      # @return [Integer]
      def page(file)
        require_relative "../../../memintro"
        write_page(read(file))
      end

      # @param listeners [Array] one process; with --workers also those below it, whose figures are summed
      # @return [Integer]
      def live_page(listeners)
        reports, code = reports_of(listeners)
        write_page(Memintro::Report.sum(reports.values))
        code
      end

      def write_page(report)
        return write_to(@out, report) || 0 unless @output

        text = StringIO.new
        write_to(text, report)
        Memintro::Snapshot::Saved.write(@output, text.string)
        0
      end

      def write_to(out, report)
        Memintro::Report.write(report, out, **choices)
      end

      # An operand means a process if it cannot be a path, or if there is no such file.
      def file?(word)
        word == STANDARD_INPUT || File.exist?(word) || word.include?("/") || word.match?(/\.(?:json|txt|dump)\z/)
      end

      def request(top)
        ["report", { top: top, by: given[:by] }]
      end

      # If one cannot be shown, the others still are.
      def show(files)
        require_relative "../../../memintro"
        failures = files.each_with_index.count do |file, index|
          report = read(file)
          @out.puts if index.positive? && choices[:format] == :text
          Memintro::Report.write(report, @out, **choices)
          false
        rescue Failure => e
          raise if files.size == 1

          complain(e)
        end
        failures.zero? ? 0 : 1
      end

      # @return [Native::Report]
      def read(file)
        name = file == STANDARD_INPUT ? "standard input" : file
        Memintro::Report.read(file == STANDARD_INPUT ? $stdin.binmode.read : File.binread(file))
      rescue Errno::ENOENT, Errno::EACCES, Errno::EISDIR => e
        raise Failure, "#{file}: #{e.message.sub(/ @ .*/m, '')}"
      rescue DumpError => e
        raise Failure, "#{name}: #{e.message}"
      end

      def choices
        configured = Memintro.configuration.to_h.slice(*SETTINGS).merge(given)
        configured[:format] = :json if json?
        top = configured.delete(:top)
        top = Memintro::Report.default_top(configured[:format]) if top.nil?
        { **configured, top: top == :all ? nil : top }
      end
    end
  end
end
