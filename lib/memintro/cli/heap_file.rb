# frozen_string_literal: true

require_relative "tool_command"

module Memintro
  module CLI
    # `memintro heap`; crates/heap/src/options.rs has its command line.
    class HeapFile < ToolCommand
      # What the tool calls it.
      NAME = "heap"
    end
  end
end
