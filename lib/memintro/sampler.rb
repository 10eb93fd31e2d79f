# frozen_string_literal: true

require_relative "api/whole"
require_relative "process/rss_sampler"
