# frozen_string_literal: true

# Answers `require "mwrap"` under `memintro run --compat mwrap`, which puts this folder on the load path.
require_relative "../../mwrap"
