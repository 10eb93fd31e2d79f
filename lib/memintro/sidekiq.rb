# frozen_string_literal: true

require_relative "../memintro"
require_relative "sidekiq_middleware"
