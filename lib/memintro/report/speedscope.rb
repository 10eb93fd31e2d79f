# frozen_string_literal: true

require_relative "stack_table"
require_relative "../support/json_text"
require_relative "../support/names"

module Memintro
  module Report
    # The report for www.speedscope.app: a profile for each figure, whose samples are stacks and whose weights are
    # bytes.
    class Speedscope
      # What says which format it is.
      SCHEMA = "https://www.speedscope.app/file-format-schema.json"
      # Names of the profiles, and where rows of {StackTable} have their figures. Those of objects are left out where
      # nothing of them was tracked.
      PROFILES = { "live bytes of malloc" => 1, "bytes allocated by malloc" => 2, "growth of malloc" => 3,
                   "bytes of live objects" => 4, "bytes of objects made" => 5, "growth of objects" => 6 }.freeze
      # The first of objects.
      OBJECTS = 4
      private_constant :PROFILES, :OBJECTS

      # @param call_sites [CallSites]
      # @param by [Symbol] what decides which stacks are among the top
      def initialize(call_sites, top: nil, by: :live_bytes, app_root: nil)
        @call_sites = call_sites.stacks || call_sites
        @top = top
        @by = by
        @names = Names.new(app_root)
      end

      # @param io [#write]
      # @return [nil]
      def write(io)
        table = StackTable.from_sites(@call_sites.top(@top, by: @by))
        columns = PROFILES.reject { |_, at| at >= OBJECTS && table.rows.all? { |row| row[at].zero? } }
        io.write(JsonText.line({ "$schema": SCHEMA, name: title, exporter: "memintro #{VERSION}", activeProfileIndex: 0,
                                 shared: { frames: table.frames.map { |frame| frame(*frame) } },
                                 profiles: columns.map { |name, at| profile(name, table.rows, at) } }) << "\n")
        nil
      end

      private

      def title
        process = @call_sites.process
        "#{Names.printable((process[:program] || 'ruby').to_s)} (pid #{process[:pid]})"
      end

      def frame(path, line, label)
        return { name: Names.printable(path) } if line.zero?

        { name: Names.printable(label || @names.shortened("#{path}:#{line}")), file: Names.printable(path), line: line }
      end

      # Weights must not be negative: what has shrunk is left out.
      def profile(name, rows, column)
        rows = rows.select { |row| row[column].positive? }
        weights = rows.map { |row| row[column].round }
        { type: "sampled", name: name, unit: "bytes", startValue: 0, endValue: weights.sum,
          samples: rows.map(&:first), weights: weights }
      end
    end
  end
end
