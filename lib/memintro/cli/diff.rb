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
               memintro diff [options] -- CMD [ARGUMENTS]

        Says what there is more of in LATER than in EARLIER, two files of memintro snapshot. Of three and more
        files it says what grew over all of them, how fast and how surely. With a CMD: what grew from before its
        first line to its end.
      TEXT
      # See Look.
      FORMATS = %w[text json html].freeze
      # See Look.
      TOP = 10

      # @return [OptionParser]
      def options
        super do |parser|
          parser.on("--track", "track malloc from CMD's first line, to have call sites too") { @track = true }
        end
      end

      private

      def variables
        super.merge(PARTS: "all", TRACK: @track && 1)
      end

      def show(files)
        raise UsageError, "give two files to compare: memintro diff EARLIER LATER" if files.size < 2

        snapshots = files.map { |file| snapshot(file) }
        # A page has no place for a trend yet: it shows the first and the last.
        return put(snapshots.last - snapshots.first) if snapshots.size == 2 || @format == "html"

        put(Memintro::Trend.new(snapshots))
      end
    end
  end
end
