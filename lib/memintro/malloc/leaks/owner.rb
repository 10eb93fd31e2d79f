# frozen_string_literal: true

require_relative "../../support/value_object"

module Memintro
  class Leaks
    # Ruby objects of one class that own blocks, and those that did until the search had garbage collected. Frozen.
    class Owner
      include ValueObject

      # Names of the figures, in the order of {#to_h}.
      ATTRIBUTES = %i[class_name objects blocks bytes silent_objects tracked_objects tracked_bytes sites garbage_objects
                      garbage_bytes silent_garbage_objects garbage_sites library].freeze

      # @return [String] name of the class
      attr_reader :class_name
      # @return [Integer] objects that own blocks
      attr_reader :objects
      # @return [Integer] their blocks
      attr_reader :blocks
      # @return [Integer] the bytes of these
      attr_reader :bytes
      # @return [Integer] objects of a C extension that tells Ruby less than a quarter of what they own
      attr_reader :silent_objects
      # @return [Integer] objects of which most bytes were allocated while memintro tracked
      attr_reader :tracked_objects
      # @return [Integer] bytes that were allocated while memintro tracked
      attr_reader :tracked_bytes
      # @return [Array<Array(String, Integer)>] call sites of these, and bytes of each, the largest first
      attr_reader :sites
      # @return [Integer] objects that were garbage when the search began; 0 where that was not looked for
      attr_reader :garbage_objects
      # @return [Integer] bytes that they owned
      attr_reader :garbage_bytes
      # @return [Integer] those of a C extension that tells Ruby less than a quarter of what they own
      attr_reader :silent_garbage_objects
      # @return [Array<Array(String, Integer)>] call sites of what they owned, and bytes of each, the largest first
      attr_reader :garbage_sites
      # @return [String, nil] the library that asked for most at the first of these call sites, by samples
      attr_reader :library

      # @api private
      # @param hash [Hash{String, Symbol => Object}] {#to_h}, as the extension or JSON has it
      # @return [Owner]
      # @raise [ArgumentError, TypeError] if it is none
      def self.of_hash(hash)
        hash = hash.transform_keys(&:to_sym)
        new(**ATTRIBUTES.to_h { |name| [name, hash[name]] })
      end

      # @api private
      def initialize(class_name:, library:, sites:, garbage_sites:, **counts)
        @class_name = String(class_name)
        @library = library
        @sites, @garbage_sites = [sites, garbage_sites].map { |rows| rows.map { |row| row.dup.freeze }.freeze }
        counts.each { |name, count| instance_variable_set(:"@#{name}", Integer(count)) }
        freeze
      end

      # @return [Boolean] whether Ruby does not know how large most of these objects are
      def silent?
        silent_objects.positive? && silent_objects * 2 >= objects
      end

      # @return [Boolean] the same of those that were garbage
      def silent_garbage?
        silent_garbage_objects.positive? && silent_garbage_objects * 2 >= garbage_objects
      end

      # @return [String] one line
      def to_s
        Native.leaks_owner(to_h)
      end

      # @return [String] one short line
      def inspect
        "#<#{self.class} #{self}>"
      end
    end
  end
end
