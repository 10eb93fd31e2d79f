# frozen_string_literal: true

require "memintro"
