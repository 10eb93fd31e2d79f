# frozen_string_literal: true

# The application for a real server: puma examples/leaks/config.ru
require "memintro/rack"
require_relative "shop"

Memintro.start
use Memintro::Middleware
run Shop.new
