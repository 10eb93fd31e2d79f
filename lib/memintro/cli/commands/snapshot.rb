# frozen_string_literal: true

require_relative "../inspection"

module Memintro
  module CLI
    # `memintro snapshot`: saves the state of a process for comparisons.
    class Snapshot < Inspection
      # The name of the command.
      NAME = "snapshot"
      # Its purpose, for the list of commands.
      SUMMARY = "save what is in a process: memory, GC, objects by class, compiled code"
      # The beginning of its help.
      BANNER = <<~TEXT
        Usage: memintro snapshot [options] -- CMD [ARGUMENTS]
               memintro snapshot FILE
               memintro snapshot [options] PID|NAME…

        Runs CMD, and takes a snapshot of each of its Ruby processes when they end: memory, GC counters, objects by
        class, instruction sequences. -o saves it, for memintro diff; without -o, a summary goes to standard error.
        With a saved FILE, shows the summary, or all of it with --format json. With the PID or NAME of a process that
        listens (memintro ps), takes the snapshot now: memintro snapshot --workers -o snap.%p.json PID saves a server
        and each of its workers.
      TEXT
      # See Inspection.
      SEPARATE = %w[text json].freeze
      # See Inspection: as many as {Memintro::Snapshot#inspect} shows.
      TOP = 3
      # Parts of a CMD's snapshots by default.
      PARTS = %w[pss account sites types classes iseqs internals occupancy].freeze

      # @return [OptionParser]
      def options
        super do |parser|
          parser.on("--parts LIST", Array, "the parts to take: some of #{PARTS.take(4).join(', ')},",
                    "#{PARTS.drop(4).join(', ')};",
                    "default: all but account; none: only what costs next to nothing") do |list|
            @parts = list == %w[none] ? [] : list.each { |part| one_of("--parts", part, PARTS) }
          end
          parser.on("--track", "track malloc from CMD's first line, so that call sites are included") { @track = true }
          parser.on("--keep N", Integer, "with --every: the last N files only") do |n|
            @keep = n.positive? ? n : wrong("--keep", n, "a number from 1")
          end
        end
      end

      private

      def live_parts
        @parts || super
      end

      # A file is saved for memintro diff.
      def format_name
        @format || (@live && @output ? "json" : super)
      end

      def output_help
        ["save to FILE: %p in it becomes the process id, %n the number of",
         "the snapshot; with --every a .N is put in front of its ending"]
      end

      def variables
        super.merge(PARTS: (@parts || ["all"]).join(","), TRACK: @track && 1, KEEP: @keep, OUT: numbered)
      end

      def numbered
        return unless @output

        file = absolute(@output)
        return file if @every.nil? || File.basename(file).include?("%n")

        ending = File.extname(file)
        "#{file.delete_suffix(ending)}.%n#{ending}"
      end

      def content(snapshot, *, **)
        Summary.new(snapshot)
      end

      # Writes a snapshot as JSON or as its summary.
      Summary = Struct.new(:snapshot) do
        # @api private
        def write(io, format:, top:)
          io.write(format == :json ? snapshot.to_json : "#{snapshot.summary(top)}\n")
        end
      end
      private_constant :Summary
    end
  end
end
