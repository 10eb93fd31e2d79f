# frozen_string_literal: true

require_relative "../command"
require_relative "../targets"
require_relative "../../support/style"
require_relative "../../support/table"
require_relative "../../support/units"

module Memintro
  module CLI
    # `memintro ps`.
    class Ps < Command
      include Targets
      # The name of the command.
      NAME = "ps"
      # Its purpose, for the list of commands.
      SUMMARY = "list the running processes that listen"
      # The beginning of its help.
      BANNER = <<~TEXT
        Usage: memintro ps [options]

        Lists this user's processes that listen; root sees another user's with --user. A process listens after
        Memintro.listen, or with MEMINTRO_LISTEN=1. Removes the sockets of processes that were killed.
      TEXT

      # @return [OptionParser]
      def options
        super do |parser|
          parser.separator("\nOptions:")
          user_option(parser)
          parser.on("--json", "print JSON, a line for each process") { @json = true }
        end
      end

      # @param arguments [Array<String>] must be empty
      # @return [Integer]
      def run(arguments)
        raise UsageError, "ps takes no arguments (#{arguments.first.inspect})" unless arguments.empty?

        listeners = Control::Directory.new(users: users).all
        return list(listeners) if @json

        listeners.empty? ? @out.puts("No process listens; #{Control::Diagnosis.how}") : table(listeners)
        0
      end

      private

      def list(listeners)
        listeners.each do |listener|
          row = { pid: listener.pid, socket: listener.path }
          row.merge!(listener.info ? listener.info.except("pid", "commands") : { problem: listener.problem })
          @out.puts(JsonText.line(row))
        end
        0
      end

      # Columns and their contents.
      COLUMNS = {
        "PID" => ->(listener) { listener.pid.to_s },
        "PARENT" => ->(listener) { listener.parent&.to_s || "-" },
        "RSS" => ->(listener) { (bytes = listener.rss_bytes) ? Units.bytes(bytes) : "-" },
        "TRACKING" => ->(listener) { listener.info ? listener.info["mode"] : "?" },
        "MEMINTRO" => ->(listener) { listener.info ? listener.info["memintro"] : "?" },
        "NAME" => ->(listener) { listener.name || "-" }
      }.freeze
      private_constant :COLUMNS

      def table(listeners)
        rows = listeners.map { |listener| [*COLUMNS.values.map { |cell| cell.call(listener) }, listener.program] }
        @out.puts(Table.new(COLUMNS.keys, "PROGRAM", rows).lines(Style.for(@out)))
        problems = listeners.filter_map(&:problem)
        problems << "#{Control::Liveness::BLIND}: each tells of itself" unless Control::Liveness.proc?
        @out.puts("", *problems.map { |problem| "note: #{problem}" }) if problems.any?
      end
    end
  end
end
