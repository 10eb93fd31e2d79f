# frozen_string_literal: true

require_relative "targets"
require_relative "../support/style"

module Memintro
  module CLI
    # Handles PIDs and NAMEs as operands of `snapshot`, `diff`, `iseqs` and `histogram`: requests a snapshot from each
    # process through its control socket, and shows it like a file. They ask one after the other, so that only one
    # worker of a server is busy at a time. For {Inspection}.
    module LiveInspection
      include Targets

      # Long enough for a walk of a large heap.
      PATIENCE_SECONDS = 60
      # A name that matches is a file.
      FILE = %r{/|\.(?:json|txt|html)\z}
      private_constant :FILE

      # @param word [String] an operand
      # @return [Boolean] whether it means a process
      def self.process?(word)
        !File.exist?(word) && !word.match?(FILE)
      end

      private

      def live_options(parser)
        parser.on("--workers", "with a PID: include all listening processes below it") { @workers = true }
        user_option(parser)
        parser.on("--timeout SECONDS",
                  "with a PID: seconds to wait for an answer; default #{PATIENCE_SECONDS}") do |text|
          @timeout = seconds("--timeout", text).to_f
        end
      end

      # @return [Boolean] whether all operands are processes
      def live?(operands)
        files = operands.reject { |word| LiveInspection.process?(word) }
        if @workers && files.any?
          raise UsageError, "--workers needs the PID or NAME of a running process, and #{files.first} is a file"
        end

        files.empty? && (@workers || operands.any?)
      end

      # @param words [Array<String>] PIDs and names
      # @return [Integer] the exit code
      def inspect_live(words)
        @live = true
        @several = @workers || words.size > 1
        check_file
        code = inspect_all(targets(words))
        Memintro::Snapshot::Saved.write(@output, @together.string) if @together
        code
      end

      # Checks -o before the first request, because a diff waits for a long time.
      def check_file
        separate = self.class::SEPARATE.include?(format_name)
        if @several && separate && !@output.to_s.include?("%p") && (@output || format_name == "html")
          raise UsageError, "several processes need several files: put %p, which becomes the process id, into the " \
                            "name of -o, for example -o #{with_pid}"
        end

        check_output
      end

      def with_pid
        file = @output || "#{name}.#{format_name}"
        ending = File.extname(file)
        "#{file.delete_suffix(ending)}.%p#{ending}"
      end

      # @return [Integer]
      def inspect_all(listeners)
        over_all(listeners, apart: false) do |listener|
          found = live_snapshot(listener)
          write_live(listener, content(found, who(listener), pid: listener.pid))
        end
      end

      # @raise [ControlError, SnapshotError]
      def live_snapshot(listener, settle: false)
        asked = client(listener, @timeout || PATIENCE_SECONDS)
        text = asked.ask("snapshot", { parts: live_parts, settle: settle })
        listener.called = asked.program
        Memintro::Snapshot::Saved.parse(text, "the snapshot of #{who(listener)}")
      end

      # The parts to request from a running process.
      def live_parts
        ["all"]
      end

      def write_live(listener, what)
        return save(what, file_of(listener)) if @output && (!@several || @output.include?("%p"))

        sink = @output ? (@together ||= StringIO.new) : Printed.new(@out, format_name)
        # One line for each, as in all JSON of processes; texts in it contain no line breaks.
        return sink.puts(written(what).delete("\n")) if @several && format_name == "json"

        heading(listener, sink) if @several
        what.write(sink, **form)
      end

      def heading(listener, sink)
        sink.puts if @shown
        @shown = true
        sink.puts(Style.for(sink).bold("#{who(listener)}:"))
      end

      def file_of(listener)
        @output.gsub("%n", "1").gsub("%p", listener.pid.to_s)
      end
    end
  end
end
