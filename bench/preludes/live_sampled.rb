# frozen_string_literal: true

require "memintro"
Memintro.start(mode: :sampled)
at_exit { Memintro.report(File.open(File::NULL, "w")) }
