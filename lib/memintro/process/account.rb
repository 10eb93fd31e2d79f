# frozen_string_literal: true

require_relative "../error"
require_relative "../support/advice"
require_relative "../support/figure_lists"
require_relative "../support/list"
require_relative "../support/listed_figures"
require_relative "../support/units"
require_relative "../support/value_object"

module Memintro
  # Where the resident memory of a process is. The rows add up to {#rss} exactly; none is negative. Frozen.
  #
  # @example
  #   account = Memintro.account
  #   account[:malloc_free].bytes   # => 310_517_760
  #   puts account
  class Account
    include ValueObject
    include ListedFigures

    # Rows, in their order.
    NAMES = FigureLists::ACCOUNT.keys.freeze
    # Names of the figures, in the order of {#to_h}.
    ATTRIBUTES = %i[rss shared_bytes private_bytes allocator pause_ms verdict notes rows].freeze
    # The first member of its JSON.
    HEAD = :memintro_account
    # The number of that JSON's layout.
    LAYOUT = 1
    # The list among the figures.
    LISTED = :rows
    # Least shared memory besides files that is worth telling of.
    LEAST_SHARED = 1 << 20
    private_constant :LEAST_SHARED

    # @return [Integer] resident bytes: the sum of the rows
    attr_reader :rss
    # @return [List<Row>] one for each of {NAMES}
    attr_reader :rows
    # @return [Symbol] who answers malloc: `:glibc`, one of those in docs/allocators.md, or `:unknown`
    attr_reader :allocator
    # @return [Float] milliseconds for which Ruby stood still
    attr_reader :pause_ms
    # @return [Array<String>] what could not be read
    attr_reader :notes

    # @api private
    # @param hash [Hash{String, Symbol => Object}] {#to_h}, as the extension has it or as JSON from a file or a stranger
    # @return [Account]
    # @raise [AccountError]
    def self.of_hash(hash)
      hash = with_symbols(hash)
      rows = Array(hash[:rows]).map { |row| Row.of_hash(row) }
      raise AccountError, "these are not the rows of memintro #{VERSION}" if rows.map(&:name) != NAMES

      new(rss: Integer(hash[:rss]), rows: rows, notes: Array(hash[:notes]).map(&:to_s), verdict: Array(hash[:verdict]),
          allocator: hash[:allocator].to_s.to_sym, pause_ms: hash[:pause_ms])
    rescue TypeError, NoMethodError, ArgumentError
      raise AccountError, "this is no account of memintro"
    end

    def self.with_symbols(value)
      case value
      when Hash then value.to_h { |key, inner| [key.to_sym, with_symbols(inner)] }
      when Array then value.map { |inner| with_symbols(inner) }
      else value
      end
    end
    private_class_method :with_symbols

    # @api private
    def initialize(rss:, rows:, notes:, allocator:, pause_ms:, verdict:)
      @rss = rss
      @rows = List.new(rows)
      @notes = notes.freeze
      @allocator = allocator
      @pause_ms = pause_ms
      @verdict = verdict.freeze
      freeze
    end

    # @return [Array<String>] sentences: what takes most, and what to do about it
    attr_reader :verdict

    # @return [Integer, nil] resident bytes in pages that other processes have as well, of all rows; nil unless they are
    #   known of each
    def shared_bytes
      of_rows = rows.map(&:shared_bytes)
      of_rows.sum if of_rows.all?
    end

    # @return [Integer, nil] resident bytes in pages that no other process has
    def private_bytes
      shared = shared_bytes
      shared && (rss - shared)
    end

    # @return [Boolean] whether some memory besides files is shared, as after a fork
    def shares?
      besides_files = rows.reject { |row| FigureLists::ACCOUNT.fetch(row.name) == :files }
      besides_files.sum { |row| row.shared_bytes.to_i } >= LEAST_SHARED
    end

    # @param name [Symbol] a row's name, or a figure's
    # @return [Row, Object]
    # @raise [ArgumentError] if there is none
    def [](name)
      rows.find { |row| row.name == name } || super
    end

    # @param earlier [Account]
    # @return [Difference] what there is more of in this one
    # @raise [TypeError]
    # @example
    #   before = Memintro.account
    #   work
    #   Memintro.account.diff(before).rows.max_by(&:bytes).name   # => :malloc_native
    def diff(earlier)
      raise TypeError, "diff takes an earlier Account, not #{earlier.class}" unless earlier.is_a?(Account)

      Difference.new(self, earlier)
    end
    alias - diff

    # @return [String] the sentences, and a table with a bar for each row
    def to_s
      Native.account_text(to_h, false)
    end

    # @return [String] one short line
    def inspect
      "#<#{self.class} #{Units.bytes(rss)}: #{verdict.first}>"
    end

    # Growth between two accounts. Frozen.
    class Difference
      include ValueObject

      # Names of the figures, in the order of {#to_h}.
      ATTRIBUTES = %i[rss verdict rows].freeze

      # @return [Integer] growth of RSS: the sum of the rows
      attr_reader :rss
      # @return [List<Row>] growth of each row
      attr_reader :rows
      # @return [Array<String>] what has grown most
      attr_reader :verdict

      # @api private
      def initialize(later, earlier)
        found = Native.account_growth(earlier.to_h, later.to_h, Advice.names_commands?)
        @rss = found[:rss]
        @verdict = found[:verdict].freeze
        @rows = List.new(found[:rows].map { |row| Row.of_hash(row) })
        freeze
      end

      # @return [Hash{Symbol => Object}] all figures, with rows as hashes
      def to_h
        super.merge(rows: rows.map(&:to_h))
      end

      # @return [String] the sentence, and a table
      def to_s
        Native.account_growth_text(to_h)
      end

      # @return [String] one short line
      def inspect
        "#<#{self.class} #{verdict.first}>"
      end
    end
  end
end

require_relative "account/row"
require_relative "account/copying"
require_relative "account/mappings"
