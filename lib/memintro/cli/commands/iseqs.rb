# frozen_string_literal: true

require_relative "../inspection"

module Memintro
  module CLI
    # `memintro iseqs`: shows the compiled code in memory by file or line.
    class Iseqs < Inspection
      # The name of the command.
      NAME = "iseqs"
      # Its purpose, for the list of commands.
      SUMMARY = "show Ruby's compiled code in memory, by file or by line"
      # The beginning of its help.
      BANNER = <<~TEXT
        Usage: memintro iseqs [options] FILE
               memintro iseqs [options] PID|NAME…
               memintro iseqs [options] -- CMD [ARGUMENTS]

        Shows the bytes of Ruby's compiled methods and blocks (instruction sequences) by file or line. Tools that
        look at objects do not show them. FILE is a file of memintro snapshot. With a CMD, shows its Ruby processes
        when they end. PID or NAME is a process that listens (memintro ps). With several, or with --workers, each
        process has its own list.
      TEXT

      # @return [OptionParser]
      def options
        super do |parser|
          parser.on("--by FIGURE", "path (default): by file; location: by line") do |by|
            @by = one_of("--by", by, %w[path location])
          end
        end
      end

      private

      def live_parts
        ["iseqs"]
      end

      def variables
        super.merge(BY: @by)
      end

      def content(snapshot, name, pid: nil)
        found = snapshot.iseqs
        raise SnapshotError, "#{name} has no instruction sequences: it was taken without part :iseqs" unless found

        require_relative "../../report/heap_table"
        by = (@by || "path").to_sym
        HeapTable.iseqs(found[by == :path ? :paths : :locations], by: by, pid: pid)
      end
    end
  end
end
