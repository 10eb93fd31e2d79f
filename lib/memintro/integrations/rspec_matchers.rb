# frozen_string_literal: true

require "rspec/expectations"
require_relative "memory_claim"

module Memintro
  # Matchers of RSpec for the memory of a block. `require "memintro/rspec"` makes them available in each example.
  #
  # The figures are those of the block's own thread: blocks of malloc and slots of Ruby objects, counted exactly. The
  # block runs several times. docs/leak_checks.md explains the decision.
  module RSpecMatchers
    # Matches a block that leaks: each iteration leaves memory behind. Caches that fill up, and collections at any
    # time, are no leak.
    #
    # @option options [Integer] :iterations approximate number of runs, at least 10; five times as many if the block
    #   seems to leak
    # @option options [Integer, nil] :warm_up iterations before these; nil: a fifth of them
    # @option options [Integer] :per_iteration bytes that each iteration may leave
    # @return [MemoryMatcher]
    # @raise [ArgumentError, TypeError]
    # @example
    #   expect { parser.parse(document) }.not_to leak_memory
    #   expect { import(rows) }.not_to leak_memory(iterations: 30, per_iteration: 64)
    def leak_memory(**options) = memory_matcher("leak_memory", MemoryClaim.leak(**options))

    # Matches a block that allocates at most this number of bytes in each run: bytes from malloc, and the slots of the
    # objects that it makes.
    #
    # @param bytes [Integer]
    # @option options [Integer] :iterations how often the block runs at most; mostly five times are enough
    # @option options [Integer] :warm_up iterations before these
    # @return [MemoryMatcher]
    # @raise [ArgumentError, TypeError]
    # @example
    #   expect { serializer.dump(order) }.to allocate_at_most(50_000)
    def allocate_at_most(bytes, **options)
      claim = MemoryClaim.above(:allocated_bytes, bytes, **options)
      memory_matcher("allocate_at_most", claim, at_most: "allocate at most #{bytes} bytes an iteration")
    end

    # Matches a block that leaves at most this number of bytes behind in each run: bytes that it allocated and that
    # are live after a full collection at its end.
    #
    # @param bytes [Integer]
    # @option options [Integer] :iterations how often the block runs at most; mostly five times are enough
    # @option options [Integer] :warm_up iterations before these
    # @return [MemoryMatcher]
    # @raise [ArgumentError, TypeError]
    # @example
    #   expect { cache.fetch(:user) { load_user } }.to retain_at_most(2_000)
    def retain_at_most(bytes, **options)
      claim = MemoryClaim.above(:retained_bytes, bytes, **options)
      memory_matcher("retain_at_most", claim, at_most: "retain at most #{bytes} bytes an iteration")
    end

    # Matches a block that makes objects of these classes, or of their subclasses, that are alive after a full
    # collection at its end.
    #
    # @param classes [Array<Class>]
    # @option options [Integer] :iterations how often the block runs at most; mostly five times are enough
    # @option options [Integer] :warm_up iterations before these
    # @return [MemoryMatcher]
    # @raise [ArgumentError, TypeError]
    # @example
    #   expect { bus.publish(Message.new) }.not_to retain(Message)
    def retain(*classes, **options) = memory_matcher("retain", MemoryClaim.retain(*classes, **options))

    private

    # With MEMINTRO_DISABLE these examples are skipped.
    def memory_matcher(name, claim, at_most: nil)
      skip(claim.disabled) if Brake.holds? && respond_to?(:skip)

      MemoryMatcher.new(name, claim, at_most)
    end
  end

  # A matcher of {RSpecMatchers}. It may be negated, and combined with `and` and `or`.
  class MemoryMatcher
    include ::RSpec::Matchers::Composable

    # RSpec nests the blocks of `a.and b`: the block of the second matcher runs the first one.
    COMPOUND = %r{/rspec/matchers/built_in/compound\.rb\z}
    # A variable of the thread, in which a nested matcher leaves the block of the test.
    BLOCK = :__memintro_block
    private_constant :COMPOUND, :BLOCK

    # @api private
    # @param name [String] of the method
    # @param claim [MemoryClaim]
    # @param at_most [String, nil] the opposite of the claim, if the matcher stands for that
    def initialize(name, claim, at_most)
      @name = name
      @claim = claim
      @at_most = at_most
    end

    # @param actual [Proc]
    # @return [Boolean]
    # @raise [ArgumentError] if it is no block
    def matches?(actual)
      return @claim.true_of?(block_of(actual)) unless @at_most

      !@claim.true_of?(block_of(actual))
    end

    # @return [Boolean]
    def supports_block_expectations? = true

    # @return [Boolean]
    def supports_value_expectations? = false

    # @return [String]
    def description = @at_most || @claim.description

    # @return [String]
    def failure_message = @claim.message
    alias failure_message_when_negated failure_message

    private

    def block_of(actual)
      unless actual.is_a?(Proc)
        raise ArgumentError, "#{@name} needs a block, and was given #{Arguments.shown(actual)}: write " \
                             "expect { … } with braces"
      end

      waiting = Thread.current[BLOCK]
      block = plain(actual)
      waiting << block if waiting
      block
    end

    # The block of the test itself, so that RSpec and another matcher of memintro are not measured.
    def plain(actual)
      return actual unless COMPOUND.match?(actual.source_location&.first.to_s)

      before = Thread.current[BLOCK]
      Thread.current[BLOCK] = found = []
      begin
        actual.call
      ensure
        Thread.current[BLOCK] = before
      end
      found.first || actual
    end
  end
end
