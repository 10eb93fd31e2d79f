# frozen_string_literal: true

require_relative "../tool_command"

module Memintro
  module CLI
    # `memintro plot`; crates/tool/src/plot/options.rs has its command line.
    class Plot < ToolCommand
      # What users type.
      NAME = "plot"
      # What it is for.
      SUMMARY = "plot the MEMORY lines of a log: RSS, live objects, malloc and GC over time"
    end
  end
end
