# frozen_string_literal: true

require_relative "../memintro"
require_relative "integrations/sidekiq_middleware"
