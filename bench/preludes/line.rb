# frozen_string_literal: true

require "memintro/rack"
Program.middleware = lambda do |app|
  log = File.open("memory.log", "a").tap { |file| file.sync = true }
  Memintro::Middleware.new(app, logger: log)
end
