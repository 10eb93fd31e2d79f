# frozen_string_literal: true

# Made by `rake settings` from lib/memintro/support/settings.rb.
module Memintro
  class Configuration
    # @!attribute [rw] report
    #   @return [String, nil]
    #     file of the report at exit; `%p` becomes the process id; `-` is standard error; default: `-`
    # @!attribute [rw] format
    #   @return [Symbol]
    #     `text`, `json` or `html`; of whole stacks also `folded` or `speedscope`; default: `text`
    # @!attribute [rw] top
    #   @return [Integer, :all, nil]
    #     number of call sites to show, or `all`; default: 20; `all` in JSON
    # @!attribute [rw] by
    #   @return [Symbol, nil]
    #     what to sort by: `live_bytes`, `growth`, `total_bytes`, `allocations`, …; default: `live_bytes`; with
    #     `--objects` `retained_bytes`
    # @!attribute [rw] every
    #   @return [Numeric, nil]
    #     seconds between reports while the program runs; default: only at exit
    # @!attribute [rw] app_root
    #   @return [String, nil]
    #     folder that paths are shown relative to; default: where the command starts
    # @!attribute [rw] compat
    #   @return [:mwrap, nil]
    #     `mwrap`: a plain `require "mwrap"` works
    # @!attribute [rw] native_children
    #   @return [Boolean]
    #     `1`: also track processes that are not Ruby; the report needs a `%p`; default: `0`
    # @!attribute [rw] mode
    #   @return [Symbol]
    #     `full`: every block exactly; `sampled`: estimates; default: `full`
    # @!attribute [rw] sample_bytes
    #   @return [Integer, nil]
    #     sampled mode: sample one byte in this many, on average; default: 524,288
    # @!attribute [rw] objects
    #   @return [Boolean, :sampled, Array<Class, String>]
    #     `1`: also track Ruby objects; `Message,Hash`: only these classes; `sampled`: estimates; default: `0`
    # @!attribute [rw] stack_depth
    #   @return [Integer]
    #     lines of Ruby in a call site, 1 to 64; default: 1
    # @!attribute [rw] native_callers
    #   @return [Boolean, nil]
    #     `1`: also sample native callers in sampled mode; `0` or `--no-native-callers`: never; default: in full
    #     mode
    # @!attribute [rw] stop_after
    #   @return [Numeric, nil]
    #     seconds until tracking stops by itself; the figures stay; default: never
    # @!attribute [rw] max_sites
    #   @return [Integer, nil]
    #     greatest number of call sites to tell apart; the rest share `(other)`; default: 1,048,576
    # @!attribute [rw] max_tracker_bytes
    #   @return [Integer, nil]
    #     most memory that tracking itself may use, at least 4,194,304; default: no limit
  end
end
