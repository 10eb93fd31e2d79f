# frozen_string_literal: true

require_relative "../error"
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
    NAMES = %i[ruby_heap_live ruby_heap_free malloc_ruby_objects malloc_iseqs malloc_internal malloc_native malloc_free
               thread_stacks mapped_files anonymous memintro unattributed].freeze
    # Names of the figures, in the order of {#to_h}.
    ATTRIBUTES = %i[rss allocator pause_ms verdict notes rows].freeze
    # The first member of its JSON.
    HEAD = :memintro_account
    # The number of that JSON's layout.
    LAYOUT = 1
    # The list among the figures.
    LISTED = :rows
    # Characters of the longest bar.
    BAR = 30
    private_constant :BAR

    # @return [Integer] resident bytes: the sum of the rows
    attr_reader :rss
    # @return [List<Row>] one for each of {NAMES}
    attr_reader :rows
    # @return [Symbol] who answers malloc: `:glibc`, `:jemalloc`, `:tcmalloc`, `:mimalloc` or `:unknown`
    attr_reader :allocator
    # @return [Float] milliseconds for which Ruby stood still
    attr_reader :pause_ms
    # @return [Array<String>] what could not be read
    attr_reader :notes

    # @api private
    # @param hash [Hash{String => Object}] {#to_h} as JSON, from a file or a stranger
    # @return [Account]
    # @raise [AccountError]
    def self.of_hash(hash)
      hash = with_symbols(hash)
      rows = Array(hash[:rows]).map do |row|
        Row.new(NAMES.find { |name| name.to_s == row[:name].to_s }, Integer(row[:bytes]), row[:basis].to_s.to_sym,
                row[:details] || {})
      end
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
    # @param unfinished [String, nil] a sentence, if the copy that counted ended before it had done all
    def initialize(rss:, rows:, notes:, allocator:, pause_ms:, verdict: nil, unfinished: nil)
      @rss = rss
      @rows = List.new(rows)
      @notes = notes.freeze
      @allocator = allocator
      @pause_ms = pause_ms
      @verdict = (verdict || [*unfinished, *Verdict.of(self)]).freeze
      freeze
    end

    # @return [Array<String>] sentences: what takes most, and what to do about it
    attr_reader :verdict

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
      largest = [rows.map(&:bytes).max, 1].max
      lines = rows.map do |row|
        bar = "#" * (BAR * row.bytes / largest)
        "#{Units.bytes(row.bytes).rjust(10)}  #{Units.share(row.bytes, rss).rjust(6)}  #{bar.ljust(BAR)}  " \
          "#{row.name}#{mark(row)}"
      end
      [*verdict, "", *lines, "#{Units.bytes(rss).rjust(10)}  100.0%  #{' ' * BAR}  RSS",
       *("" unless notes.empty?), *notes.map { |note| "Note: #{note}." }].join("\n")
    end

    # @return [String] one short line
    def inspect
      "#<#{self.class} #{Units.bytes(rss)}: #{verdict.first}>"
    end

    private

    def mark(row)
      row.basis == :measured || row.bytes.zero? ? "" : " (#{row.basis})"
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
        @rss = later.rss - earlier.rss
        @rows = List.new(later.rows.zip(earlier.rows).map do |now, before|
          Row.new(now.name, now.bytes - before.bytes, now.basis)
        end)
        @verdict = Verdict.of_growth(self).freeze
        freeze
      end

      # @return [Hash{Symbol => Object}] all figures, with rows as hashes
      def to_h
        super.merge(rows: rows.map(&:to_h))
      end

      # @return [String] the sentence, and a table
      def to_s
        [*verdict, "", *rows.map { |row| "#{Units.signed_bytes(row.bytes).rjust(11)}  #{row.name}" },
         "#{Units.signed_bytes(rss).rjust(11)}  RSS"].join("\n")
      end

      # @return [String] one short line
      def inspect
        "#<#{self.class} #{verdict.first}>"
      end
    end
  end
end

require_relative "account/row"
require_relative "account/verdict"
require_relative "account/reading"
require_relative "account/mappings"
