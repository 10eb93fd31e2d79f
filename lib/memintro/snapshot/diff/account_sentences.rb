# frozen_string_literal: true

require_relative "../../process/account"
require_relative "../../support/units"
require_relative "../../support/advice"

module Memintro
  class Diff
    # What grew of resident memory, by what it is for, in words.
    # @api private
    class AccountSentences
      # Growth below this gets no sentence: a process that is asked for a snapshot grows by some of it.
      LEAST = 1 << 20
      # Private memory that grew by so much more than RSS was shared before.
      LEAST_UNSHARED = 1 << 20
      # Private memory of Ruby's heap.
      HEAP = %w[ruby_heap_live ruby_heap_free].freeze
      # Rows whose growth is that of objects.
      OBJECTS = %i[malloc_ruby_objects ruby_heap_live].freeze
      # The name of a class as code and a shell can write it: not `(hidden T_ARRAY)`.
      CLASS = /\A[A-Z]\w*(?:::[A-Z]\w*)*\z/
      private_constant :LEAST, :LEAST_UNSHARED, :HEAP, :OBJECTS, :CLASS

      # @param diff [Diff]
      def initialize(diff)
        @diff = diff
      end

      # @return [Array<String>]
      def list
        [*largest, *unshared]
      end

      private

      def largest
        change = @diff.account.to_a.max_by(&:growth)
        return if change.nil? || change.growth < LEAST

        name = change.name.to_sym
        "#{Account::Verdict.grown(name, change.growth, *holders(name))}." if Account::NAMES.include?(name)
      end

      # The next command, where one class has most of what objects grew by: a histogram would name it once more.
      def holders(name)
        return unless OBJECTS.include?(name)

        grown = @diff.classes.to_a.select { |change| change.growth.positive? }
        most = grown.max_by(&:growth)
        return unless most && most.growth * 2 >= grown.sum(&:growth)

        Advice.holders(most.name) if CLASS.match?(most.name)
      end

      # After a fork, memory becomes private page by page, and RSS stays as it is.
      def unshared
        own = @diff.account_private.to_a
        growth = own.sum(&:growth) - @diff.account.to_a.sum(&:growth)
        return if growth < LEAST_UNSHARED

        first = own.max_by(&:growth)
        "#{Units.bytes(growth)} that was shared with other processes is this process's own now, most of it in " \
          "#{first.name} (#{first.growth_text})#{cause(first)}: docs/copy_on_write.md."
      end

      def cause(first)
        aged = @diff.gc.to_a.find { |change| change.name == "old_objects" }&.growth.to_i
        return "" unless HEAP.include?(first.name) && aged.positive?

        "; #{Units.counted(aged, 'object')} became old meanwhile, which is written to the slot of each"
      end
    end
  end
end
