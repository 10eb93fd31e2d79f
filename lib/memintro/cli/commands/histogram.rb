# frozen_string_literal: true

require_relative "../inspection"

module Memintro
  module CLI
    # `memintro histogram`: shows the number and the bytes of the objects of each class.
    class Histogram < Inspection
      # The name of the command.
      NAME = "histogram"
      # Its purpose, for the list of commands.
      SUMMARY = "show all objects by class"
      # The beginning of its help.
      BANNER = <<~TEXT
        Usage: memintro histogram [options] FILE
               memintro histogram [options] PID|NAME…
               memintro histogram [options] -- CMD [ARGUMENTS]

        Shows all objects by class, Ruby's internal objects included. FILE is a file of memintro snapshot. With a
        CMD, shows its Ruby processes when they end. PID or NAME is a process that listens (memintro ps). With
        several, or with --workers, each process has its own list.
      TEXT

      private

      def live_parts
        ["classes"]
      end

      def content(snapshot, name, pid: nil)
        found = snapshot.classes
        raise SnapshotError, "#{name} has no classes: it was taken without part :classes" unless found

        require_relative "../../report/heap_table"
        HeapTable.classes(found, pid: pid)
      end
    end
  end
end
