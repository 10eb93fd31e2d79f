# frozen_string_literal: true

require_relative "tool"

module Memintro
  module CLI
    # A command whose words `memintro-tool` reads: its flags, checks and help are in the tool.
    class ToolCommand
      # @param _out [IO] the tool has the standard output of the process
      def initialize(_out); end

      # @param words [Array<String>]
      # @return [void] never, if all is well
      # @raise [Failure]
      def call(words) = Tool.become(self.class::NAME, *words)
    end
  end
end
