# frozen_string_literal: true

require_relative "look"

module Memintro
  module CLI
    # `memintro diff`: says what grew between snapshots, or from a program's first line to its end.
    class Diff < Look
      # What its help begins with.
      BANNER = <<~TEXT
        Usage: memintro diff [options] EARLIER LATER
               memintro diff [options] FIRST SECOND … LAST
               memintro diff [options] PID|NAME [--for SECONDS]
               memintro diff [options] -- CMD [ARGUMENTS]

        Says what there is more of in LATER than in EARLIER, two files of memintro snapshot. Of three and more
        files it says what grew over all of them, how fast and how surely. With a CMD: what grew from before its
        first line to its end. With the PID or NAME of a process that listens (memintro ps): what grew in it
        within 30 s, or --for so many; its garbage is collected before each look, and what looking itself takes
        does not count.
      TEXT
      # See Look.
      FORMATS = %w[text json html].freeze
      # See Look.
      TOP = 10

      # @return [OptionParser]
      def options
        super do |parser|
          parser.on("--for SECONDS", "with a PID: between the two looks; default 30") do |text|
            @for = seconds("--for", text).to_f
          end
          parser.on("--track", "track malloc from CMD's first line, to have call sites too") { @track = true }
        end
      end

      private

      def variables
        super.merge(PARTS: "all", TRACK: @track && 1)
      end

      def live(word)
        earlier = live_snapshot(word, settle: true)
        sleep(@for || 30)
        put(live_snapshot(word, settle: true) - earlier)
      end

      def show(files)
        return live(files.first) if files.size == 1 && LiveSnapshot.process?(files.first)
        raise UsageError, "--for needs the PID or NAME of one process" if @for

        raise UsageError, "give two files to compare: memintro diff EARLIER LATER, or a PID" if files.size < 2

        snapshots = files.map { |file| snapshot(file) }
        # A page has no place for a trend yet: it shows the first and the last.
        return put(snapshots.last - snapshots.first) if snapshots.size == 2 || @format == "html"

        put(Memintro::Trend.new(snapshots))
      end
    end
  end
end
