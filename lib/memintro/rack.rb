# frozen_string_literal: true

# For config.ru: `require "memintro/rack"`, then `use Memintro::Middleware`.
require_relative "../memintro"
require_relative "integrations/middleware"
