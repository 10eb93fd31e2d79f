# frozen_string_literal: true

require_relative "../memintro"
require_relative "snapshot/trend"
require_relative "snapshot/diff"
