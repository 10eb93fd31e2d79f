# frozen_string_literal: true

require "json"
require_relative "../error"
require_relative "command"

module Memintro
  module CLI
    # `memintro rss`: memory of a process as the kernel counts it. Nothing is loaded into the process.
    class Rss < Command
      # What its help begins with.
      BANNER = <<~TEXT
        Usage: memintro rss [options] PID
               memintro rss [options] -- CMD [ARGUMENTS]

        Shows the memory of a process, of any program: RSS, its peak, PSS, USS, swap and address space. With CMD,
        runs it and shows on standard error what was last seen before it ended; CMD's exit status is passed on.
      TEXT
      # How often a CMD is looked at if nobody watches.
      LOOK_SECONDS = 0.1
      # Figures and their headings.
      COLUMNS = { rss: "RSS", peak_rss: "peak RSS", pss: "PSS", uss: "USS", swap: "swap",
                  vsize: "address space" }.freeze

      # @return [OptionParser]
      def options
        super do |parser|
          parser.separator("\nOptions:")
          parser.on("--watch SECONDS", "show a line so often, until the process ends") { |text| @watch = seconds(text) }
          parser.on("--children", "all its descendants too; PSS counts shared pages once") { @children = true }
          parser.on("--format FORMAT", "text (default) or json, an object a line") { |text| @format = known(text) }
        end
      end

      # @param arguments [Array<String>] PID or CMD
      # @return [Integer]
      def run(arguments)
        raise UsageError, "give one PID, or -- CMD (memintro rss --help)" if arguments.empty?

        require_relative "../../memintro"
        @command ? run_command(arguments) : show_process(arguments)
      rescue Memintro::Error => e
        raise Failure, e.message
      end

      private

      # What follows -- belongs to CMD.
      def parse(parser, argv)
        at = argv.index("--")
        return parser.permute(argv) unless at

        rest = parser.permute(argv.take(at))
        raise UsageError, "give either a PID or -- CMD, not both (#{rest.first})" unless rest.empty?

        @command = true
        argv.drop(at + 1)
      end

      def seconds(text)
        Settings[:every].parse(text, "--watch")
      rescue ArgumentError => e
        raise UsageError, e.message
      end

      def known(text)
        return text if %w[text json].include?(text)

        raise UsageError, "--format is #{text.inspect}; it must be text or json"
      end

      def show_process(arguments)
        unless arguments.size == 1 && arguments.first.match?(/\A[1-9]\d{0,9}\z/)
          raise UsageError, "#{arguments.join(' ').inspect} is not one process id; to run a program, write " \
                            "memintro rss -- #{arguments.join(' ')}"
        end

        memory = memory_of(Integer(arguments.first, 10))
        show(look(memory))
        watch(memory) if @watch
        0
      end

      def memory_of(pid)
        ProcessMemory.new(pid, children: @children)
      rescue ArgumentError => e
        raise UsageError, e.message
      end

      def watch(memory)
        loop do
          sleep(@watch)
          show(look(memory))
        end
      rescue NoProcessError
        nil # it has ended, and all was shown
      end

      # Its signals are the terminal's as ever; those sent to us are passed on.
      def run_command(command)
        @out = $stderr
        pid = spawn_command(command)
        %w[INT QUIT].each { |name| trap(name, "IGNORE") }
        %w[TERM HUP].each { |name| trap(name) { Process.kill(name, pid) } }
        status = follow(pid)
        status.signaled? ? 128 + status.termsig : status.exitstatus
      end

      def spawn_command(command)
        Process.spawn([command.first, command.first], *command.drop(1))
      rescue Errno::ENOENT
        raise Failure.new("#{command.first}: command not found", 127)
      rescue Errno::EACCES, Errno::ENOEXEC, Errno::EISDIR => e
        raise Failure.new("#{command.first}: cannot be run: #{e.message.sub(/ - .*/m, '')}", 126)
      end

      def follow(pid)
        memory = memory_of(pid)
        waiter = Process.detach(pid)
        last = nil
        until waiter.join(@watch || LOOK_SECONDS)
          last = seen(memory) || last
          show(last) if @watch && last
        end
        show(last) if last && !@watch
        @out.puts("memintro: it ended before it was looked at") unless last
        waiter.value
      end

      # @return [Hash, nil] nil where it has just ended
      def seen(memory)
        found = look(memory)
        found if found[:vsize].positive?
      rescue NoProcessError
        nil
      end

      def look(memory)
        COLUMNS.to_h { |name, _| [name, figure(memory, name)] }.merge(pid: memory.pid, time: Time.now)
      end

      # RSS may be everybody's to know where PSS is not.
      def figure(memory, name)
        memory.public_send(name)
      rescue ForbiddenError
        raise if name == :rss

        nil
      end

      def show(found)
        @format == "json" ? show_json(found) : show_text(found)
        @out.flush
      end

      def show_json(found)
        figures = COLUMNS.to_h { |name, _| ["#{name}_bytes", found[name]] }
        about = { pid: found[:pid], time: found[:time].to_f, children: @children ? true : false }
        @out.puts(JSON.generate(about.merge(figures)))
      end

      def show_text(found)
        cells = COLUMNS.map { |name, title| [title, found[name] ? Units.bytes(found[name]) : "not allowed"] }
        return @out.puts("process #{found[:pid]}#{' and its children' if @children}", *lines(cells)) unless @watch

        @out.puts(row(["time", *cells.map(&:first)])) unless @titled
        @titled = true
        @out.puts(row([found[:time].strftime("%H:%M:%S"), *cells.map(&:last)]))
      end

      def lines(cells)
        cells.map { |title, text| "  #{title.ljust(13)} #{text.rjust(12)}" }
      end

      def row(cells)
        cells.map { |text| text.rjust(13) }.join(" ")
      end
    end
  end
end
