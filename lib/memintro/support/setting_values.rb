# frozen_string_literal: true

# Made by `rake settings` from lib/memintro/support/settings.rb.
module Memintro
  # What a start needs of the settings.
  # @api private
  module SettingValues
    # Values that are not nil, of settings that are not set.
    DEFAULTS = { format: :text, native_children: false, mode: :full, objects: false, stack_depth: 1 }.freeze
    # Least and greatest numbers.
    LEAST = { max_tracker_bytes: 4_194_304 }.freeze
    MOST = { sample_bytes: 1_073_741_824, stack_depth: 64, max_sites: 16_777_216 }.freeze
    # What {Memintro.start} takes.
    START = %i[mode sample_bytes objects stack_depth native_callers stop_after max_sites max_tracker_bytes].freeze
    # Numbers that the hook takes, in its order; 0 is the default.
    HOOK = %i[sample_bytes stack_depth max_sites max_tracker_bytes].freeze
    # Variables that {Settings} has to read and check.
    CHECKED = %w[MEMINTRO_FORMAT MEMINTRO_TOP MEMINTRO_BY MEMINTRO_EVERY MEMINTRO_COMPAT
                 MEMINTRO_NATIVE_CHILDREN MEMINTRO_SAMPLE_BYTES MEMINTRO_NATIVE_CALLERS MEMINTRO_STOP_AFTER
                 MEMINTRO_MAX_SITES MEMINTRO_MAX_TRACKER_BYTES].freeze
  end
end
