# frozen_string_literal: true

module Memintro
  # Version of the gem, of its extension and of its hook: the three are built and shipped together.
  VERSION = "0.1.0"
end
