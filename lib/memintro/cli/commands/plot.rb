# frozen_string_literal: true

require_relative "../tool_command"

module Memintro
  module CLI
    # `memintro plot`; crates/tool/src/plot/options.rs has its command line.
    class Plot < ToolCommand
      # The name of the command.
      NAME = "plot"
      # Its purpose, for the list of commands.
      SUMMARY = "plot the MEMORY lines of a log: RSS, live objects, malloc and GC over time"
    end
  end
end
