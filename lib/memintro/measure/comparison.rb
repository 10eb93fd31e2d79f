# frozen_string_literal: true

require_relative "../support/json_text"
require_relative "../support/statistics"
require_relative "../support/value_object"
require_relative "comparison_text"
require_relative "measurement"

module Memintro
  # The costs of several pieces of code, side by side: see {Memintro.compare}. Frozen.
  #
  # @example
  #   comparison = Memintro.compare(a: -> { "x" * 1_000 }, b: -> { "x" * 2_000 })
  #   comparison[:b].allocated_bytes.median          # => 2_001.0
  #   comparison.ratio(:b, :allocated_bytes)         # => 1.998
  #   puts comparison
  class Comparison
    # Figures of the rounds that measure only time.
    TIMED = %i[wall_ns cpu_ns gc_count gc_time_ns].freeze
    # Figures of the other rounds, of this thread.
    COUNTED = %i[allocated_bytes allocations retained_bytes retained_blocks objects_allocated objects_retained].freeze
    # All figures of a {Side}.
    FIGURES = [*TIMED, *COUNTED].freeze
    # Names of the attributes, in the order of {#to_h}.
    ATTRIBUTES = %i[rounds sides notes].freeze

    include ValueObject

    # A figure over all rounds. Frozen.
    class Spread
      # Names of the attributes, in the order of {#to_h}.
      ATTRIBUTES = %i[median least most].freeze

      include ValueObject

      # @return [Float] median of all rounds
      attr_reader :median
      # @return [Integer] of all rounds
      attr_reader :least
      # @return [Integer] of all rounds
      attr_reader :most

      # @api private
      # @param values [Array<Integer>] of the rounds
      def initialize(values)
        @median = Statistics.median(values)
        @least, @most = values.minmax
        freeze
      end

      # @return [Boolean] whether each round had the same
      def same?
        least == most
      end

      # @param other [Spread]
      # @return [Boolean] whether the ranges of both overlap, so that the rounds do not show which is more
      def overlaps?(other)
        least <= other.most && other.least <= most
      end

      # @return [String]
      def inspect
        "#<#{self.class} #{median} (#{least} to #{most})>"
      end
      alias to_s inspect
    end

    # One piece of code. Each figure is a {Spread}, or nil if it is not known in each round. Frozen.
    class Side
      # Names of the attributes, in the order of {#to_h}.
      ATTRIBUTES = FIGURES

      include ValueObject

      ATTRIBUTES.each { |name| attr_reader name }

      # @api private
      # @param timed [Array<Measurement>]
      # @param counted [Array<Measurement>]
      def initialize(timed, counted)
        { TIMED => timed, COUNTED => counted }.each do |names, rounds|
          names.each { |name| instance_variable_set(:"@#{name}", spread(rounds.map(&name))) }
        end
        freeze
      end

      # @return [Hash{Symbol => Hash, nil}] each figure as a hash
      def to_h
        super.transform_values { |spread| spread&.to_h }
      end

      # @return [String]
      def inspect
        "#<#{self.class} #{ATTRIBUTES.filter_map { |name| "#{name} #{self[name].median}" if self[name] }.join(', ')}>"
      end
      alias to_s inspect

      private

      def spread(values)
        Spread.new(values) if values.all?
      end
    end

    # To be called in {Measurement.hidden}.
    #
    # @api private
    # @param pieces [Hash{Symbol => #call}]
    # @param rounds [Integer] that count, of each kind
    # @param gc [Boolean] whether garbage is collected between them
    # @return [Comparison]
    def self.compare(pieces, rounds:, gc:)
      blocks = pieces.transform_values { |piece| piece.is_a?(Proc) ? piece : piece.method(:call).to_proc }
      timed = run(blocks, rounds) { |block| time(block, gc) }
      counted = nil
      # Tracking stays on between the rounds.
      all = proc do
        counted = Measurement.hidden { run(blocks, rounds) { |block| measure(block, gc) } }
      end
      Measurement.take(all, gc: false, objects: false, top: 0)
      new(rounds, timed, counted)
    end

    # Each round in another order; the first is not counted.
    def self.run(blocks, rounds)
      found = blocks.transform_values { [] }
      (0..rounds).each do |round|
        blocks.keys.rotate(round).each do |name|
          measurement = yield blocks[name]
          found[name] << measurement unless round.zero?
        end
      end
      found
    end
    private_class_method :run

    def self.time(block, collect)
      GC.start if collect
      # Results of the pieces must not affect later rounds.
      Measurement.take(block, gc: false, objects: false, top: 0, malloc: false).without_value
    end
    private_class_method :time

    def self.measure(block, collect)
      Measurement.take(block, gc: collect, objects: true, top: 0).without_value
    end
    private_class_method :measure

    # @return [Integer] how many rounds count, of each kind
    attr_reader :rounds
    # @return [Hash{Symbol => Side}] by name
    attr_reader :sides
    # @return [Array<String>] why figures are missing
    attr_reader :notes

    # @api private
    def initialize(rounds, timed, counted)
      @rounds = rounds
      @sides = timed.to_h { |name, measurements| [name, Side.new(measurements, counted[name])] }.freeze
      @notes = counted.values.flatten.flat_map(&:notes).uniq.freeze
      freeze
    end

    # @param name [Symbol, String] of a piece, or one of {ATTRIBUTES}
    # @return [Side, Object]
    # @raise [ArgumentError] if there is none
    def [](name)
      key = name.respond_to?(:to_sym) ? name.to_sym : name
      @sides.fetch(key) { super }
    end

    # @param name [Symbol] of a piece
    # @param figure [Symbol] one of {FIGURES}
    # @return [Float, nil] how many times the median of the first piece its median is; nil if that is 0 or not known
    def ratio(name, figure)
      one, base = self[name][figure], @sides.values.first[figure]
      one.median / base.median if one && base && base.median.positive?
    end

    # @return [Hash{Symbol => Object}] every attribute, sides as hashes
    def to_h
      { **super, sides: sides.transform_values(&:to_h) }
    end

    # @return [String] {#to_h} as JSON, in one line
    def to_json(*)
      UntrackedText.made { JsonText.line(to_h) }
    end

    # @return [String] one short line
    def inspect
      "#<#{self.class} #{ComparisonText.new(self).answers.join(' ').chomp('.')}>"
    end

    # @return [String] the answer, then a table
    def to_s
      ComparisonText.new(self).lines.join("\n")
    end
  end
end
