# frozen_string_literal: true

require_relative "../../support/names"
require_relative "../../support/units"
require_relative "lines"
require_relative "verdict"

module Memintro
  class Leaks
    # What holds blocks of a call site, by the numbers in which the frozen copy says it.
    # @api private
    class Holder
      # Instead of a thread's number (ext/memintro/src/leaks/roots.rs).
      CALLER = 1 << 22
      # Objects that wait to be finalized, among the types of the VM's own.
      ZOMBIE = 0x1d
      private_constant :CALLER, :ZOMBIE

      # @return [Integer]
      attr_reader :bytes

      # @param kind [Integer] a kind of ext/memintro/src/leaks/roots.rs
      # @param label [Integer] of an object its class, of a static its address, of a stack its thread
      # @param bytes [Integer] that it holds
      # @param roots [Integer] how many objects or words they are
      def initialize(kind, label, bytes, roots)
        @kind = kind
        @label = label
        @bytes = bytes
        @roots = roots
      end

      # @return [Hash{Symbol => Object}] of a {Group}
      def fields
        { held_by: to_s, held_bytes: bytes, owner: owner, owners: (@roots if owner) }
      end

      # @return [Hash{Symbol => Object}] of a {Group} that something else holds more of
      def also
        { also_held_by: to_s, also_held_bytes: bytes }
      end

      # @return [String]
      def to_s
        case @kind
        when 1 then "a static, #{Native.address_name(@label) || 'or memory of a thread'}"
        when 2 then stack
        when LeakLines::OBJECT then Holder.objects(@roots, owner)
        when 4 then "an internal object of Ruby"
        when 5 then "memory that was mapped past malloc"
        when 6 then Verdict::UNTRACKED
        when 8 then "code that was made at run time"
        when 10 then @label == ZOMBIE ? "an object that waits for its finalizer" : "an object of Ruby's VM"
        when 13 then "the stack of a fiber"
        else "a block that is not decided"
        end
      end

      # @param count [Integer]
      # @param name [String, nil] of their class
      # @return [String]
      def self.objects(count, name)
        of = "of class #{name || '(no name)'}"
        count == 1 ? "a Ruby object #{of}" : "#{Units.count(count)} Ruby objects #{of}"
      end

      private

      def owner
        return unless @kind == LeakLines::OBJECT

        @owner ||= Native.class_name_at(@label)
      end

      # Its number; {CALLER}; or where a stack begins of which the thread is not known.
      def stack
        return "the stack of the calling thread" if @label == CALLER
        return "the stack of a thread" if @label > CALLER

        name = Names.printable(File.binread("/proc/self/task/#{@label}/comm").chomp)
        "the stack of thread #{@label} (#{name})"
      rescue SystemCallError
        "the stack of thread #{@label}, which has ended"
      end
    end
  end
end
