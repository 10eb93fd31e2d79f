# frozen_string_literal: true

require_relative "../memintro"
require_relative "process/rss_sampler"
