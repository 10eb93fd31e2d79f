# frozen_string_literal: true

require "minitest"
require_relative "memory_claim"

module Memintro
  # Assertions of Minitest for the memory of a block. `require "memintro/minitest"` makes them available in each test,
  # and as expectations in specs.
  #
  # The figures are those of the block's own thread: blocks of malloc and slots of Ruby objects, counted exactly. The
  # block runs several times. docs/leak_checks.md explains the decision.
  module MinitestAssertions
    # Fails if the block leaks: if each iteration leaves memory behind. Caches that fill up, and collections at any
    # time, are no leak.
    #
    # @param message [String, nil] to begin the failure with
    # @option options [Integer] :iterations approximate number of runs, at least 10; five times as many if the block
    #   seems to leak
    # @option options [Integer, nil] :warm_up iterations before these; nil: a fifth of them
    # @option options [Integer] :per_iteration bytes that each iteration may leave
    # @yield
    # @return [true]
    # @raise [ArgumentError, TypeError]
    # @example
    #   assert_no_leaks { parser.parse(document) }
    #   assert_no_leaks(iterations: 30, per_iteration: 64) { import(rows) }
    def assert_no_leaks(message = nil, **options, &block)
      assert_memory(__callee__, message, false, block) { MemoryClaim.leak(**options) }
    end
    alias refute_leaks assert_no_leaks

    # Fails unless the block leaks. See {#assert_no_leaks}.
    #
    # @return [true]
    def assert_leaks(message = nil, **options, &block)
      assert_memory(__callee__, message, true, block) { MemoryClaim.leak(**options) }
    end

    # Fails if the block allocates more than this number of bytes in each run: bytes from malloc, and the slots of the
    # objects that it makes.
    #
    # @param bytes [Integer]
    # @param message [String, nil] to begin the failure with
    # @option options [Integer] :iterations how often the block runs at most; mostly five times are enough
    # @option options [Integer] :warm_up iterations before these
    # @yield
    # @return [true]
    # @raise [ArgumentError, TypeError]
    # @example
    #   assert_allocates_at_most(50_000) { serializer.dump(order) }
    def assert_allocates_at_most(bytes, message = nil, **options, &block)
      assert_memory(__callee__, message, false, block) { MemoryClaim.above(:allocated_bytes, bytes, **options) }
    end

    # Fails if the block leaves more than this number of bytes behind in each run: bytes that it allocated and that
    # are live after a full collection at its end.
    #
    # @param bytes [Integer]
    # @param message [String, nil] to begin the failure with
    # @option options [Integer] :iterations how often the block runs at most; mostly five times are enough
    # @option options [Integer] :warm_up iterations before these
    # @yield
    # @return [true]
    # @raise [ArgumentError, TypeError]
    # @example
    #   assert_retains_at_most(2_000) { cache.fetch(:user) { load_user } }
    def assert_retains_at_most(bytes, message = nil, **options, &block)
      assert_memory(__callee__, message, false, block) { MemoryClaim.above(:retained_bytes, bytes, **options) }
    end

    # Fails if the block makes objects of these classes, or of their subclasses, that are alive after a full
    # collection at its end.
    #
    # @param classes [Array<Class>]
    # @option options [Integer] :iterations how often the block runs at most; mostly five times are enough
    # @option options [Integer] :warm_up iterations before these
    # @yield
    # @return [true]
    # @raise [ArgumentError, TypeError]
    # @example
    #   refute_retains(Message) { bus.publish(Message.new) }
    def refute_retains(*classes, **options, &block)
      assert_memory(__callee__, nil, false, block) { MemoryClaim.retain(*classes, **options) }
    end

    # Fails unless the block does so. See {#refute_retains}.
    #
    # @return [true]
    def assert_retains(*classes, **options, &block)
      assert_memory(__callee__, nil, true, block) { MemoryClaim.retain(*classes, **options) }
    end

    private

    # With MEMINTRO_DISABLE these tests are skipped.
    def assert_memory(name, message, expected, block)
      raise ArgumentError, "#{name} needs a block: #{name} { … }" unless block

      claim = yield
      skip(claim.disabled) if Brake.holds?

      is_so = claim.true_of?(block) == expected
      assert(is_so, proc { [message, claim.message].compact.join("\n") })
    end
  end
end
