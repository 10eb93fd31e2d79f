# frozen_string_literal: true

require_relative "printed"
require_relative "remote"
require_relative "../support/style"
require_relative "../report/report"
require_relative "../support/units"

module Memintro
  module CLI
    # Shared by `memintro top` and `memintro report`: figures by call site of running processes, one by one, or summed
    # over a process and its descendants.
    class Figures < Remote
      # The settings that are flags.
      SETTINGS = %i[format top by app_root].freeze

      private

      # @return [Integer]
      def figures(listeners, default_top:)
        require_relative "../../memintro"
        return family(listeners, default_top) if @workers

        top = count(format_top(default_top))
        over_all(listeners, apart: !json? && chosen_format == :text) do |listener|
          command, arguments = request(top)
          arguments = { **arguments, format: :json, app_root: given[:app_root] }.compact
          next @out.write(document(client(listener), command, arguments).first) if json?

          report = answered(listener, command, { **arguments, **wanted })
          present(report, top: top, by: given[:by], app_root: report.root)
        end
      end

      # @return [Symbol]
      def chosen_format = given[:format] || :text

      # Parts that the chosen format needs from the process, besides JSON.
      def wanted = { rendering: true, stacks: stacks? || nil }.compact

      # @return [Boolean] whether the chosen format shows whole stacks
      def stacks? = Defaults::FORMATS.dig(chosen_format, :stacks) ? true : false

      # Default number of call sites; nil: all
      def format_top(default_top) = stacks? ? nil : default_top

      # @return [Native::Report] with the folder that paths are shown relative to
      def answered(listener, command, arguments)
        _, report = document(client(listener), command, arguments)
        report.root ? report : raise(ControlError, "the process answered without what a table needs")
      end

      # @return [Native::Report]
      def read_answer(text) = Memintro::Report.read(text)

      # @param report [Native::Report]
      def present(report, **choices)
        Memintro::Report.write(report, Printed.new(@out, chosen_format.to_s), format: chosen_format, **choices)
      end

      # @return [Array(String, Native::Report)] an answer as text and as a report, both safe to print
      def document(asked, command, arguments)
        text = asked.ask(command, arguments)
        report = read_answer(text)
        [Names.json(text), report]
      rescue DumpError => e
        raise ControlError, asked.bad(command, e.message)
      end

      # @return [Integer, nil] nil: all
      def count(default)
        top = given.fetch(:top) { json? ? :all : default }
        top == :all ? nil : top
      end

      # Asks for all sites: a site that is small in each process may be large in total.
      def family(listeners, default_top)
        reports, code = reports_of(listeners)
        if chosen_format == :text && !json?
          @out.puts(*members(reports), "", "sum of these processes (the header is the first one's):")
        end
        given[:format] = :json if json?
        sum = Memintro::Report.sum(reports.values)
        # Paths are relative to the same folder as in the table of one process.
        present(sum, top: count(format_top(default_top)), by: given[:by], app_root: given[:app_root] || sum.root)
        code
      end

      # @return [Array(Hash, Integer)] the report of each process, and the exit code
      def reports_of(listeners)
        require_relative "../../memintro"
        reports = {}
        code = over_all(listeners, apart: false) do |listener|
          asked = { format: :json, top: nil, **(json? ? {} : wanted) }
          reports[listener] = document(client(listener), "report", asked).last
        end
        raise Failure, "none of the #{listeners.size} processes answered" if reports.empty?

        [reports, code]
      end

      def members(reports)
        rows = reports.map do |listener, report|
          totals = Totals.from_native(report.totals).to_h.transform_keys(&:name)
          rss = listener.rss_bytes
          [listener.pid.to_s, rss ? Units.bytes(rss) : "-", shown(totals, :bytes, "live_bytes"),
           shown(totals, :count, "live_blocks"), listener.program]
        end
        table = Table.new(%w[PID RSS live blocks], "PROGRAM", rows)
        [*table.lines(Style.for(@out)), *idle(reports)]
      end

      # The sum contains only what these processes collected before they stopped.
      def idle(reports)
        idle = reports.reject { |_, report| report.process[:tracking] }.keys
        return [] if idle.empty? || idle.size == reports.size

        ["", "Not tracking, of #{reports.size}: #{idle.map(&:pid).join(', ')}."]
      end
    end
  end
end
