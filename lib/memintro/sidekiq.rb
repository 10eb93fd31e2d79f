# frozen_string_literal: true

require_relative "api/whole"
require_relative "integrations/sidekiq_middleware"
