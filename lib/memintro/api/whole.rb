# frozen_string_literal: true

# Memintro as a whole, for the files that build on it: `memintro run` leaves it out until somebody asks.
require_relative "../../memintro"
Memintro::Rest.load if defined?(Memintro::Rest)
