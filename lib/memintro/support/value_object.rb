# frozen_string_literal: true

require_relative "by_name"
require_relative "untracked_text"

module Memintro
  # What all figures have in common: frozen, compared by value, read by name. The class that includes this lists its
  # attributes, in order, in `ATTRIBUTES`.
  module ValueObject
    include ByName

    # @api private
    def self.included(base)
      base.prepend(UntrackedText)
    end

    # @return [Hash{Symbol => Object}] every attribute, in a fixed order
    def to_h
      Native.untracked_enter
      self.class::ATTRIBUTES.to_h { |name| [name, public_send(name)] }
    ensure
      Native.untracked_leave
    end

    # @return [Boolean] whether both have the same class and the same values
    def ==(other)
      other.instance_of?(self.class) && other.to_h == to_h
    end
    alias eql? ==

    # @return [Integer] equal for equal values
    def hash
      to_h.hash
    end

    # Lets `case totals in {live_bytes: 1_000_000..}` work.
    # @param _keys [Array<Symbol>, nil]
    # @return [Hash{Symbol => Object}]
    def deconstruct_keys(_keys)
      to_h
    end
  end
end
