# frozen_string_literal: true

require_relative "../tool_command"

module Memintro
  module CLI
    # `memintro requests`; crates/tool/src/requests/mod.rs has its command line.
    class Requests < ToolCommand
      # The name of the command.
      NAME = "requests"
      # Its purpose, for the list of commands.
      SUMMARY = "rank requests by the memory they allocate, from the MEMORY lines of a log"
    end
  end
end
