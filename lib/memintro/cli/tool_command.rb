# frozen_string_literal: true

require_relative "command"
require_relative "tool"

module Memintro
  module CLI
    # A command whose words `memintro-tool` reads: its flags, checks and help are in the tool, under the same name.
    class ToolCommand < Command
      # @param words [Array<String>]
      # @return [void] only after a failure
      # @raise [Failure]
      def call(words) = Tool.become(self.class::NAME, *words)
    end
  end
end
