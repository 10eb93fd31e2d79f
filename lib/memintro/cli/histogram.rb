# frozen_string_literal: true

require_relative "inspection"

module Memintro
  module CLI
    # `memintro histogram`: how many objects of which class there are, and how much they take.
    class Histogram < Inspection
      # What its help begins with.
      BANNER = <<~TEXT
        Usage: memintro histogram [options] FILE
               memintro histogram [options] PID|NAME…
               memintro histogram [options] -- CMD [ARGUMENTS]

        Shows all objects by class, Ruby's internal ones too. FILE is one of memintro snapshot; with a CMD, it is
        looked at when it ends. PID or NAME is a process that listens (memintro ps); of several, or with --workers,
        each has a list of its own.
      TEXT

      private

      def live_parts
        ["classes"]
      end

      def content(snapshot, name, pid: nil)
        found = snapshot.classes
        raise SnapshotError, "#{name} has no classes: it was taken without part :classes" unless found

        require_relative "../report/heap_table"
        HeapTable.classes(found, pid: pid)
      end
    end
  end
end
