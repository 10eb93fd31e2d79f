# frozen_string_literal: true

require_relative "../../memintro"
require_relative "../measure/claim_check"
require_relative "../measure/leak_check"
require_relative "../support/arguments"
require_relative "../support/brake"
require_relative "memory_claim_text"

module Memintro
  # A claim of a test about the memory of a block. The matchers of RSpec and the assertions of Minitest check the same
  # claims, with the same options and the same texts.
  # @api private
  class MemoryClaim
    # Default number of iterations of a leak check.
    LEAK_ITERATIONS = 100
    # With fewer, a leak cannot be distinguished from noise.
    LEAST_LEAK_ITERATIONS = 10
    # Default limit of iterations that are measured one by one.
    ITERATIONS = 20
    # Iterations before these.
    WARM_UP = 2
    # Most iterations that a test may request.
    MOST_ITERATIONS = 1_000_000
    private_constant :LEAK_ITERATIONS, :LEAST_LEAK_ITERATIONS, :ITERATIONS, :WARM_UP, :MOST_ITERATIONS

    class << self
      # The claim that the block leaks more than a number of bytes an iteration.
      #
      # @param iterations [Integer]
      # @param warm_up [Integer, nil] nil: a fifth of the iterations
      # @param per_iteration [Integer] bytes
      # @return [MemoryClaim]
      def leak(iterations: LEAK_ITERATIONS, warm_up: nil, per_iteration: 0)
        return new(nil, LeakText.new(0)) if Brake.on?

        count(:iterations, iterations, least: LEAST_LEAK_ITERATIONS)
        count(:warm_up, warm_up) unless warm_up.nil?
        Arguments.count(:per_iteration, per_iteration)
        warm_up ||= iterations / 5
        check = LeakCheck.new(iterations: iterations, warm_up: warm_up, per_iteration: per_iteration)
        new(check, LeakText.new(per_iteration))
      end

      # The claim that an iteration allocates, or retains, more than a number of bytes.
      #
      # @param figure [Symbol] `:allocated_bytes` or `:retained_bytes`
      # @param bytes [Integer]
      # @return [MemoryClaim]
      def above(figure, bytes, iterations: ITERATIONS, warm_up: WARM_UP)
        text = BytesText.new(figure, bytes)
        return new(nil, text) if Brake.on?

        Arguments.count(:bytes, bytes)
        new(check(figure, bytes, iterations, warm_up), text)
      end

      # The claim that an iteration retains objects of these classes.
      #
      # @param classes [Array<Class>]
      # @return [MemoryClaim]
      def retain(*classes, iterations: ITERATIONS, warm_up: WARM_UP)
        text = ObjectsText.new(classes)
        return new(nil, text) if Brake.on?
        raise ArgumentError, "no class is given; name the classes whose objects are counted" if classes.empty?

        classes.each do |klass|
          next if klass.is_a?(Class)

          raise TypeError, "#{Arguments.shown(klass)} is not a class; name the classes whose objects are counted"
        end
        new(check(:retained_objects, 0, iterations, warm_up, classes), text)
      end

      private

      def check(figure, limit, iterations, warm_up, classes = [])
        count(:iterations, iterations, least: 1)
        count(:warm_up, warm_up)
        ClaimCheck.new(figure, limit: limit, iterations: iterations, warm_up: warm_up, classes: classes)
      end

      def count(name, value, least: 0) = Arguments.count(name, value, least: least, most: MOST_ITERATIONS)
    end

    # @api private
    # @param check [LeakCheck, ClaimCheck, nil] nil under `MEMINTRO_DISABLE`
    # @param text [ClaimText]
    def initialize(check, text)
      @check = check
      @text = text
    end

    # @return [String] such as "leak memory"
    def description = @text.description

    # Runs the block until the check decides.
    #
    # @param block [Proc]
    # @return [Boolean] whether the claim is true
    # @raise [DisabledError, UnsupportedError, Error] if nothing can be measured
    def true_of?(block)
      raise DisabledError, disabled unless @check

      @verdict = @check.run(block)
      @verdict.above?
    end

    # @return [String] the message of a failed test: the finding, the lines that made the memory, and the holders of
    #   the rest
    def message = @text.render(@verdict)

    # @return [String] why there is no check under `MEMINTRO_DISABLE`
    def disabled = "#{Brake.cause}, so memory is not measured"
  end
end
