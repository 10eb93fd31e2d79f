# frozen_string_literal: true

require_relative "../../error"
require_relative "../command"
require_relative "../../support/names"
require_relative "../../support/json_text"

module Memintro
  module CLI
    # `memintro rss`: memory of processes as the kernel counts it. Nothing is loaded into a process.
    class Rss < Command
      # The name of the command.
      NAME = "rss"
      # Its purpose, for the list of commands.
      SUMMARY = "show the RSS, PSS and USS of processes, or the peak of a command"

      autoload :Run, File.expand_path("../rss_run.rb", __dir__)
      autoload :MemoryFigures, File.expand_path("../rss_figures.rb", __dir__)

      # The beginning of its help.
      BANNER = <<~TEXT
        Usage: memintro rss [options] PID…
               memintro rss [options] FILE…
               memintro rss [options] -- CMD [ARGUMENTS]

        Shows the memory of any process: RSS, peak RSS, PSS, USS, swap and address space. With several PIDs, prints a
        line for each. With a FILE of memintro snapshot, shows the figures at the time of the snapshot. With a CMD,
        runs it, and shows the last figures before it ended and the peak of its largest process, on standard error.
        The exit status is CMD's.
      TEXT

      # @return [OptionParser]
      def options
        super do |parser|
          parser.separator("\nOptions:")
          parser.on("--watch SECONDS", "print a line every SECONDS, until the process ends") do |text|
            @watch = seconds("--watch", text)
          end
          parser.on("--children", "include all descendants; PSS counts shared pages once") { @children = true }
          parser.on("--format FORMAT", "text (default), or json: one object per line") { |text| @format = known(text) }
        end
      end

      # @param arguments [Array<String>] PIDs, files or CMD
      # @return [Integer]
      def run(arguments)
        raise missing if arguments.empty? && !@command
        raise UsageError, "give a program to run: memintro rss -- CMD" if arguments.empty?

        require_relative "../../../memintro"
        @command ? Run.new(self, watch: @watch).call(arguments) : show_each(arguments)
      rescue Memintro::Error => e
        raise Failure, e.message
      end

      # @api private
      # @param pid [Integer]
      # @return [ProcessMemory]
      def memory_of(pid)
        ProcessMemory.new(pid, children: @children)
      rescue ArgumentError => e
        raise UsageError, e.message
      end

      # @api private
      # @return [Boolean]
      def json?
        @format == "json"
      end

      # @api private
      # @param reading [MemoryFigures]
      # @param out [IO]
      def show(reading, out = @out)
        json? ? show_json(reading, out) : show_text(reading, out)
        out.flush
      end

      private

      def missing
        require_relative "../candidates"
        Candidates.missing("give a PID, a saved snapshot, or -- CMD (memintro rss --help):")
      end

      def parse(parser, argv)
        parse_before_command(parser, argv) { |rest| "give either a PID or -- CMD, not both (#{rest.first})" }
      end

      def known(text)
        return text if %w[text json].include?(text)

        raise UsageError, "--format is #{text.inspect}; it must be text or json"
      end

      def show_each(words)
        check(words = words.uniq)
        @several = words.size > 1
        found = words.filter_map { |word| attempt(words) { pid?(word) ? memory_of(Integer(word, 10)) : word } }
        found = found.select { |subject| attempt(words) { show(reading(subject)) || true } }
        watch(found) if @watch
        @failed ? 1 : 0
      end

      def check(words)
        odd = words.find { |word| !pid?(word) && !file?(word) }
        if odd
          raise UsageError, "#{odd.inspect} is neither a process id nor a file; to run a program, write " \
                            "memintro rss -- #{words.join(' ')}"
        end

        file = words.find { |word| !pid?(word) } if @watch || @children
        raise UsageError, "#{@watch ? '--watch' : '--children'} is for running processes, and #{file} is a file" if file
      end

      def pid?(word)
        word.match?(/\A[1-9]\d*\z/)
      end

      def file?(word)
        File.exist?(word) || word.match?(%r{/|\.json\z})
      end

      # If one fails, the others are still shown.
      def attempt(words)
        yield
      rescue Memintro::Error => e
        raise if words.size == 1

        @failed = true
        CLI.complain($stderr, e.message)
        nil
      end

      def reading(subject)
        subject.is_a?(String) ? MemoryFigures.saved(subject) : MemoryFigures.at(subject)
      end

      def watch(subjects)
        until subjects.empty?
          sleep(@watch)
          subjects = subjects.select do |memory|
            show(reading(memory)) || true
          rescue NoProcessError
            false # it has ended, and all was shown
          end
        end
      end

      def show_json(reading, out)
        about = { pid: reading.pid, file: reading.file, time: reading.time.to_f,
                  children: @children ? true : false }.compact
        text = JsonText.line(about.merge(reading.figures.transform_keys { |name| "#{name}_bytes" }))
        out.puts(Names.json(text))
      end

      def show_text(reading, out)
        cells = reading.cells
        return out.puts("#{reading.name}#{' and its children' if @children}", *block(cells)) unless @several || @watch

        out.puts(row(["time", *cells.map(&:first)], "process")) unless @titled
        @titled = true
        time = reading.time.getlocal.strftime("%H:%M:%S")
        out.puts(row([time, *cells.map(&:last)], reading.shown_file || reading.pid))
      end

      def block(cells)
        cells.map { |title, text| "  #{title.ljust(13)} #{text.rjust(12)}" }
      end

      def row(cells, name)
        "#{cells.map { |text| text.rjust(13) }.join(' ')}#{"  #{name}" if @several}"
      end
    end
  end
end
