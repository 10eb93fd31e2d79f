# frozen_string_literal: true

require "memintro"
Memintro.start
Memintro.stop
