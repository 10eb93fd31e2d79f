# frozen_string_literal: true

require "fiddle"

# Leaks memory that Ruby knows nothing of: what a C library hands out has to be given back to it.
module Thumbnails
  def self.draw(_name)
    canvas = Fiddle.malloc(64 * 1024)
    Fiddle::Pointer.new(canvas)[0, 4] = "\x89PNG".b
    "64 KiB drawn"
  end
end
