# frozen_string_literal: true

require_relative "../inspection"

module Memintro
  module CLI
    # `memintro diff`: shows what grew between snapshots, in a running process, or from a program's first line to its
    # end.
    class Diff < Inspection
      # The name of the command.
      NAME = "diff"
      # Its purpose, for the list of commands.
      SUMMARY = "show what grew between snapshots, in a running process, or during a command"
      # The beginning of its help.
      BANNER = <<~TEXT
        Usage: memintro diff [options] EARLIER LATER
               memintro diff [options] FIRST SECOND … LAST
               memintro diff [options] PID|NAME… [--for SECONDS]
               memintro diff [options] -- CMD [ARGUMENTS]

        Shows what grew from EARLIER to LATER, two files of memintro snapshot. The older file counts as EARLIER,
        whatever the order. With three or more files: what grew over all of them, how fast, and how surely. With a
        CMD: what grew from before its first line to its end. With the PID or NAME of a process that listens
        (memintro ps): what grew in 30 s, or in --for SECONDS. Garbage is collected before both snapshots; --no-gc
        leaves that out. Only objects that outlived a collection count, so what a busy process makes while it is
        looked at is left out. With several PIDs or with --workers, each process has its own diff.
      TEXT
      # See Inspection.
      FORMATS = %w[text json html].freeze
      # See Inspection.
      TOP = 10

      # @return [OptionParser]
      def options
        super do |parser|
          parser.on("--for SECONDS", "with a PID: time between the two snapshots; default 30") do |text|
            @for = seconds("--for", text).to_f
          end
          parser.on("--no-gc", "with a PID: do not collect garbage before them. A collection stops",
                    "a process with a large heap for a second; without it, garbage counts",
                    "as growth") { @keep_garbage = true }
          parser.on("--account", "also where RSS is: Ruby, malloc, free memory, stacks. A copy of the",
                    "process counts, which stops it for up to 34 ms of each GiB") { @account = true }
          parser.on("--track", "track malloc from CMD's first line, so that call sites are included") { @track = true }
        end
      end

      private

      def variables
        super.merge(PARTS: live_parts.join(","), TRACK: @track && 1)
      end

      def live_parts
        @account ? %w[all account] : super
      end

      # One wait serves all processes.
      def inspect_all(listeners)
        earlier = {}.compare_by_identity
        code = over_all(listeners, apart: false) do |listener|
          earlier[listener] = live_snapshot(listener, settle: !@keep_garbage)
        end
        return code if earlier.empty?

        sleep(@for || 30)
        [code, over_all(earlier.keys, apart: false) do |listener|
          write_live(listener, live_snapshot(listener, settle: !@keep_garbage) - earlier[listener])
        end].max
      end

      def show(files)
        raise UsageError, "--no-gc needs PIDs or NAMEs of processes, and no files" if @keep_garbage
        raise UsageError, "--account needs PIDs or NAMEs of processes, and no files" if @account
        raise UsageError, "--for needs PIDs or NAMEs of processes, and no files" if @for

        text = "give two files to compare: memintro diff EARLIER LATER, or a PID"
        raise Candidates.missing("#{text}:", users) if files.empty?
        raise UsageError, text if files.size < 2

        snapshots = files.map { |file| snapshot(file) }
        put(snapshots.size == 2 ? older_first(files, *snapshots) : Memintro::Trend.new(snapshots))
      end

      # If the files are in the wrong order, the older one still counts as the earlier.
      def older_first(files, first, last)
        diff = last - first
        return diff unless diff.seconds.negative?

        $stderr.puts("memintro: #{files[1]} is older than #{files[0]}; comparing from the older one on")
        first - last
      end
    end
  end
end
