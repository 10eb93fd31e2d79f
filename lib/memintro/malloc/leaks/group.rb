# frozen_string_literal: true

require_relative "../../support/value_object"

module Memintro
  class Leaks
    # Blocks of one verdict, call site and size. Frozen.
    class Group
      include ValueObject

      # Names of the figures, in the order of {#to_h}.
      ATTRIBUTES = %i[verdict site size count bytes youngest oldest held_by held_bytes owner owners also_held_by
                      also_held_bytes first_words example].freeze
      # @return [Symbol] one of {Leaks::VERDICTS}
      attr_reader :verdict
      # @return [String, nil] name of the call site; nil: the blocks were allocated while nothing was tracked
      attr_reader :site
      # @return [Integer, nil] bytes of each block: as asked for where the site is known, else what malloc gave; nil:
      #   several sizes
      attr_reader :size
      # @return [Integer] blocks
      attr_reader :count
      # @return [Integer] bytes of all
      attr_reader :bytes
      # @return [Integer, nil] age of the youngest in collections; nil: not known
      attr_reader :youngest
      # @return [Integer, nil] age of the oldest
      attr_reader :oldest
      # @return [String, nil] of indirectly leaked blocks, the leaked ones that hold them; of anchored ones, what holds
      #   most of their bytes. An object that has them as its own comes before an old word on a stack
      attr_reader :held_by
      # @return [Integer, nil] bytes of them that it holds
      attr_reader :held_bytes
      # @return [String, nil] of anchored blocks that Ruby objects hold, the class of those that hold most
      attr_reader :owner
      # @return [Integer, nil] how many objects of it hold some
      attr_reader :owners
      # @return [String, nil] of anchored blocks, what holds most of the others
      attr_reader :also_held_by
      # @return [Integer, nil] bytes of them that it holds
      attr_reader :also_held_bytes
      # @return [Array<String>, nil] what the first words of the first block look like, if that was asked for: never
      #   what they hold
      attr_reader :first_words
      # @return [String, nil] the address of the first block, for a debugger, if first words were asked for
      attr_reader :example

      # @api private
      # @param hash [Hash{String, Symbol => Object}] {#to_h}, as the extension or JSON has it
      # @return [Group]
      # @raise [ArgumentError, TypeError] if it is none
      def self.of_hash(hash)
        hash = hash.transform_keys(&:to_sym)
        values = ATTRIBUTES.to_h { |name| [name, hash[name]] }
        verdict = VERDICTS.find { |name| name.to_s == values[:verdict].to_s } or raise ArgumentError
        [values[:count], values[:bytes]].each { |number| Integer(number) }
        new(**values, verdict: verdict)
      end

      # @api private
      def initialize(verdict:, count:, bytes:, first_words: nil, **more)
        @verdict = verdict
        @count = count
        @bytes = bytes
        @first_words = first_words&.freeze
        rest = ATTRIBUTES - %i[verdict count bytes first_words]
        rest.each { |name| instance_variable_set(:"@#{name}", more[name]) }
        freeze
      end

      # @return [String] such as `50,000 blocks of 1,024 bytes (48.8 MiB)`
      def blocks = Native.leaks_group(to_h)[1]

      # @return [String, nil] what holds them, with the bytes where it is not all of them
      def holders = Native.leaks_group(to_h)[2]

      # @return [String] one line
      def to_s
        Native.leaks_group(to_h)[0]
      end

      # @return [String] one short line
      def inspect
        "#<#{self.class} #{self}>"
      end
    end
  end
end
