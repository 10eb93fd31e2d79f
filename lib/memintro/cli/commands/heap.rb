# frozen_string_literal: true

require_relative "../tool_command"

module Memintro
  module CLI
    # `memintro heap`; crates/heap/src/options.rs has its command line.
    class HeapFile < ToolCommand
      # The name of the command.
      NAME = "heap"
      # Its purpose, for the list of commands.
      SUMMARY = "read a heap dump: classes, what keeps objects alive, leaks, a page"
    end
  end
end
