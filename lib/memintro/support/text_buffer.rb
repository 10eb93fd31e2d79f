# frozen_string_literal: true

module Memintro
  # An IO that writes to a String, because StringIO would have to be loaded into the program.
  # @api private
  TextBuffer = Struct.new(:text) do
    # @return [Integer]
    def write(part)
      text << part
      part.bytesize
    end
  end
end
