# frozen_string_literal: true

require "memintro/rack"
# A line for one request in a billion: none is written.
Program.middleware = lambda do |app|
  Memintro::Middleware.new(app, one_in: 1_000_000_000, logger: File.open(File::NULL, "a"))
end
