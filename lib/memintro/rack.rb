# frozen_string_literal: true

# For config.ru: `require "memintro/rack"`, then `use Memintro::Middleware`.
require_relative "api/whole"
require_relative "integrations/middleware"
