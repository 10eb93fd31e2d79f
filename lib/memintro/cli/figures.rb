# frozen_string_literal: true

require_relative "printed"
require_relative "remote"
require_relative "../support/style"
require_relative "tables"
require_relative "../support/units"

module Memintro
  module CLI
    # Shared by `memintro top` and `memintro report`: figures by call site of running processes, one by one, or summed
    # over a process and its descendants.
    class Figures < Remote
      # The settings it takes as flags.
      SETTINGS = %i[format top by app_root].freeze

      private

      # @return [Integer]
      def figures(listeners, default_top:)
        return stacks(listeners, default_top) if STACKS.include?(given[:format])
        return family(listeners, default_top) if @workers

        require_relative "../api/whole"
        over_all(listeners) do |listener|
          command, arguments = request(count(default_top))
          arguments = { **arguments, format: :json, app_root: given[:app_root] }.compact
          next @out.write(document(client(listener), command, arguments).first) if json?

          _, answer = document(client(listener), command, { **arguments, rendering: true })
          Tables.new(answer).write(Printed.new(@out, "text"),
                                   top: count(default_top), by: given[:by], **manner)
        end
      end

      # Formats of whole stacks, which the process itself writes.
      STACKS = %i[folded speedscope].freeze
      private_constant :STACKS

      def stacks(listeners, default_top)
        command, arguments = request(nil)
        raise UsageError, "--format #{given[:format]} is for memintro report" if command != "report"
        return family(listeners, default_top) if @workers

        arguments = { **arguments, top: count(nil), format: given[:format], app_root: given[:app_root] }.compact
        over_all(listeners, apart: false) do |listener|
          @out.write(Names.lines(client(listener).ask(command, arguments)))
        end
      end

      # Further arguments of a table.
      def manner
        {}
      end

      # @return [Array<String, Hash>] an answer as it came, and what it says, both without a surprise in them
      def document(asked, command, arguments)
        text = asked.ask(command, arguments)
        [Names.json(text), asked.checked(command, JsonText.parse(text, deepest: Control::Protocol::DEEPEST))]
      rescue JsonText::Invalid, EncodingError, ArgumentError
        raise ControlError, asked.bad(command, "it is not JSON")
      end

      # @return [Integer, nil] nil: all
      def count(default)
        top = given.fetch(:top) { json? ? :all : default }
        top == :all ? nil : top
      end

      # Asks for all sites: a site that is small in each process may be large in total.
      def family(listeners, default_top)
        format = json? ? :json : (STACKS & [given[:format]]).first || :text
        reports, code = reports_of(listeners, rendering: format == :text)
        sum = Control::WorkerReports.sum(reports.values)
        if format == :text
          @out.puts(*members(reports), "", "sum of these processes (the header is the first one's):")
        end
        Memintro::Report.write(sum, Printed.new(@out, format == :json ? "json" : "text"),
                               format: format, top: count(STACKS.include?(format) ? nil : default_top),
                               by: given[:by] || sum.default_figure, app_root: given[:app_root] || root_of(reports))
        code
      end

      # Paths are relative to the same folder as in the table of one process.
      def root_of(reports)
        told = reports.each_value.map { |report| report["rendering"] }.grep(Hash)
        told.map { |rendering| rendering["app_root"] }.grep(String).first
      end

      # @return [Array(Hash, Integer)] what each process reports, and the exit code
      def reports_of(listeners, rendering:)
        require_relative "../api/whole"
        require_relative "../control/worker_reports"
        reports = {}
        code = over_all(listeners, apart: false) do |listener|
          wanted = { format: :json, top: nil, rendering: rendering }
          reports[listener] = document(client(listener), "report", wanted).last
        end
        raise Failure, "none of the #{listeners.size} processes answered" if reports.empty?

        [reports, code]
      end

      def members(reports)
        rows = reports.map do |listener, report|
          totals = report.fetch("totals")
          rss = listener.rss_bytes
          [listener.pid.to_s, rss ? Units.bytes(rss) : "-", shown(totals, :bytes, "live_bytes"),
           shown(totals, :count, "live_blocks"), listener.program]
        end
        table = Table.new(%w[PID RSS live blocks], "PROGRAM", rows)
        [*table.lines(Style.for(@out)), *idle(reports)]
      end

      # The sum contains only what these processes collected before they stopped.
      def idle(reports)
        idle = reports.reject { |_, report| report.dig("process", "tracking") }.keys
        return [] if idle.empty? || idle.size == reports.size

        ["", "Not tracking, of #{reports.size}: #{idle.map(&:pid).join(', ')}."]
      end
    end
  end
end
