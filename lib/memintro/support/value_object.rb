# frozen_string_literal: true

require_relative "untracked_text"

module Memintro
  # Reading figures by name. The class that includes this lists the names in `ATTRIBUTES`.
  module ByName
    # @param name [Symbol, String] an attribute
    # @return [Object] its value
    # @raise [ArgumentError] if there is no such attribute
    # @example
    #   Memintro.totals[:live_bytes]
    def [](name)
      attribute = name.respond_to?(:to_sym) ? name.to_sym : name
      return public_send(attribute) if self.class::ATTRIBUTES.include?(attribute)

      raise ArgumentError, "#{self.class} has no #{name.inspect}; it has #{self.class::ATTRIBUTES.join(', ')}"
    end
  end

  # The methods of all figures: frozen, compared by value, read by name. The class that includes this lists its
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
