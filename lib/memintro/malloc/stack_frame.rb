# frozen_string_literal: true

require_relative "../support/value_object"

module Memintro
  # A line of a stack. Frozen.
  #
  # @example
  #   Memintro.stacks(1).first.stack.first.label   # => "add"
  class StackFrame
    # Names of the attributes, in the order of {#to_h}.
    ATTRIBUTES = %i[path line label].freeze

    include ValueObject

    # @return [String] path of the file as Ruby has it
    attr_reader :path
    # @return [Integer] line of the file, from 1
    attr_reader :line
    # @return [String, nil] the name of the method, block or file, such as `block in run`; nil: it is not known
    attr_reader :label

    # @api private
    def initialize(path, line, label = nil)
      @path = path
      @line = line
      @label = label
      freeze
    end

    # @return [String] as Ruby writes it
    def to_s
      label ? "#{path}:#{line}:in `#{label}'" : "#{path}:#{line}"
    end

    # @return [String] one short line
    def inspect
      "#<#{self.class} #{self}>"
    end
  end
end
