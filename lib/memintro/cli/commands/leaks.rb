# frozen_string_literal: true

require_relative "../copy_inspection"

module Memintro
  module CLI
    # `memintro leaks`: blocks of malloc that nothing points to.
    class LeaksCommand < CopyInspection
      # The name of the command.
      NAME = "leaks"
      # Its purpose, for the list of commands.
      SUMMARY = "find blocks of malloc that nothing points to, by line and size"
      # The beginning of its help.
      BANNER = <<~TEXT
        Usage: memintro leaks [options] PID|NAME…
               memintro leaks [options] -- CMD [ARGUMENTS]
               memintro leaks [options] --core FILE

        Finds blocks of malloc that nothing points to any more, by call site and size, and says what holds the others.
        PID or NAME is a process that listens (memintro ps). A copy of it searches. The process itself stands still
        only for the garbage collection before, and while the kernel copies it: 30 to 100 ms for each GB, twice.
        With a CMD, each of its Ruby processes tracks from its start, and is searched when it ends.
        A core FILE of a Ruby process is searched as well. It says lines and ages where memintro tracked in that
        process. If malloc was not glibc's, only blocks that were tracked are judged.

        #{LongStop::TEXT}
      TEXT
      # Seconds that a copy may take.
      SECONDS = 120
      # Approximate seconds of a search for each live object with its blocks, and for each GiB. Below a second there
      # is no notice.
      SECONDS_PER_OBJECT = 1e-6
      SECONDS_PER_GIB = 0.8
      LONG = 1
      private_constant :SECONDS, :SECONDS_PER_OBJECT, :SECONDS_PER_GIB, :LONG

      # @return [OptionParser]
      def options
        super do |parser|
          parser.on("--track SECONDS", "with a PID: track for so long before, so that lines are known; if the",
                    "process tracks already, only wait") { |text| @track = seconds("--track", text).to_f }
          parser.on("--first-words", "say what the first words of leaked blocks look like, never what they hold") do
            @first_words = true
          end
          parser.on("--no-gc", "do not collect garbage first: what only garbage points to counts as held") do
            @no_gc = true
          end
          parser.on("--core FILE", "search a core file, as the kernel, gcore or gdb write it") { |file| @core = file }
        end
      end

      # @param words [Array<String>] PIDs and names
      # @return [Integer] the exit code
      def run(words)
        return super unless @core
        raise UsageError, "give either --core FILE or a PID, not #{words.first}" unless words.empty?
        raise UsageError, "give either --core FILE or a program to run" if @command
        raise UsageError, "--track needs a PID: a core file is of a process that has ended" if @track

        require_relative "../../../memintro"
        require_relative "../../report/leaks_report"
        require_relative "../../malloc/leaks/core_file"
        show_core
        0
      end

      private

      def show_core
        check_output
        leaks, pid = Leaks::CoreFile.search(@core, first_words: @first_words == true)
        report = LeaksReport.new(leaks, name: File.basename(@core), pid: pid)
        return save(report, @output) if @output

        report.write(Printed.new(@out, format_name), **form)
      rescue LeaksError => e
        raise Failure, e.message
      end

      def variables
        super.merge(TRACK: "1", FIRST_WORDS: (@first_words ? "1" : nil))
      end

      def inspect_all(listeners)
        started = listeners.select { |listener| track(listener) }
        wait(listeners) if @track
        super
      ensure
        Array(started).each { |listener| stop(listener) }
      end

      def wait(listeners)
        which = listeners.size == 1 ? "process #{listeners.first.pid}" : "#{listeners.size} processes"
        say("tracks #{which} for #{Units.duration(@track)}, and then searches it") if @track > LONG
        sleep(@track)
      end

      def announce(listener)
        super
        figures = client(listener, PATIENCE_SECONDS).ask_json("vitals", { top: 1 })
        # A process that tracks may have more blocks than objects.
        objects = [figures["live_objects"], figures["totals"]["live_blocks"]].max
        bytes = figures["rss_bytes"].to_i
        seconds = (objects * SECONDS_PER_OBJECT) + (bytes.fdiv(1 << 30) * SECONDS_PER_GIB)
        return if seconds < LONG

        say("searches process #{listener.pid} (#{Units.count(objects)} objects or blocks, RSS " \
            "#{Units.bytes(bytes)}): that takes about #{seconds.ceil} s, and more where processors are busy")
      rescue ControlError
        nil # The search itself says what is wrong.
      end

      def say(text) = $stderr.puts("memintro: #{text}")

      def copies = 2

      def arguments
        { gc: !@no_gc, first_words: @first_words == true, seconds: SECONDS }
      end

      def patience
        2 * SECONDS
      end

      def report(answer, **process)
        LeaksReport.new(Leaks.of_hash(answer), **process)
      end

      # @return [Boolean] whether tracking was off before
      def track(listener)
        return false unless @track

        asked = client(listener, PATIENCE_SECONDS)
        return false if asked.ask_json("info")["tracking"]

        client(listener, PATIENCE_SECONDS).ask_json("start", { mode: "full" })["state"] == "started"
      end

      # Turns tracking off again if this command has started it, also after an error or Ctrl-C.
      def stop(listener)
        client(listener, PATIENCE_SECONDS).ask_json("stop")
      rescue ControlError => e
        CLI.complain($stderr, "tracking could not be stopped: #{e.message}")
      end
    end
  end
end
