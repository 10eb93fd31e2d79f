# frozen_string_literal: true

require_relative "tool_command"

module Memintro
  module CLI
    # `memintro plot`; crates/tool/src/plot/options.rs has its command line.
    class Plot < ToolCommand
      # What the tool calls it.
      NAME = "plot"
    end
  end
end
