# frozen_string_literal: true

module Memintro
  # Reading by name, which all figures have in common. The class that includes this lists the names in `ATTRIBUTES`.
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
end
