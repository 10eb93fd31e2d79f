# frozen_string_literal: true

require_relative "tool_command"

module Memintro
  module CLI
    # `memintro requests`; crates/tool/src/requests/mod.rs has its command line.
    class Requests < ToolCommand
      # What the tool calls it.
      NAME = "requests"
    end
  end
end
