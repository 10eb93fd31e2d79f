# frozen_string_literal: true

require_relative "../memintro"
require_relative "snapshot/snapshot"
require_relative "snapshot/diff"
