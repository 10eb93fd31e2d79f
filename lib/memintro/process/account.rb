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
    ATTRIBUTES = %i[rss shared_bytes private_bytes allocator pause_ms verdict notes rows].freeze
    # The first member of its JSON.
    HEAD = :memintro_account
    # The number of that JSON's layout.
    LAYOUT = 1
    # The list among the figures.
    LISTED = :rows
    # Characters of the longest bar.
    BAR = 30
    # The table says what is private where so much besides files is shared.
    LEAST_SHARED = 1 << 20
    # Rows with files, which all processes that map them share. Memintro's has its libraries.
    WITH_FILES = %i[mapped_files memintro].freeze
    private_constant :BAR, :LEAST_SHARED, :WITH_FILES

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
    # @param hash [Hash{String => Object}] {#to_h} as JSON, from a file or a stranger
    # @return [Account]
    # @raise [AccountError]
    def self.of_hash(hash)
      hash = with_symbols(hash)
      rows = Array(hash[:rows]).map do |row|
        Row.new(NAMES.find { |name| name.to_s == row[:name].to_s }, Integer(row[:bytes]), row[:basis].to_s.to_sym,
                row[:details] || {}, shared_bytes: row[:shared_bytes] && Integer(row[:shared_bytes]))
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
      rows.sum { |row| WITH_FILES.include?(row.name) ? 0 : row.shared_bytes.to_i } >= LEAST_SHARED
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
      largest = [rows.map(&:bytes).max, 1].max
      titles = "#{'bytes'.rjust(10)}   share#{'private'.rjust(12)}" if shares?
      lines = rows.map do |row|
        line(row.bytes, row.private_bytes, "#" * (BAR * row.bytes / largest), "#{row.name}#{mark(row)}#{counts(row)}")
      end
      [*verdict, "", *titles, *lines, line(rss, private_bytes, "", "RSS"),
       *("" unless notes.empty?), *notes.map { |note| "Note: #{note}." }].join("\n")
    end

    # @return [String] one short line
    def inspect
      "#<#{self.class} #{Units.bytes(rss)}: #{verdict.first}>"
    end

    private

    def line(bytes, own, bar, name)
      own = shares? ? (own ? Units.bytes(own) : "unknown").rjust(12) : ""
      share = bytes == rss ? "100.0%" : Units.share(bytes, rss)
      "#{Units.bytes(bytes).rjust(10)}  #{share.rjust(6)}#{own}  #{bar.ljust(BAR)}  #{name}"
    end

    def mark(row)
      row.basis == :measured || row.bytes.zero? ? "" : " (#{row.basis})"
    end

    # Whose stacks, where they are worth a word.
    def counts(row)
      return "" if row.name != :thread_stacks || row.bytes < LEAST_SHARED

      kinds = { threads: "thread", fibers: "fiber" }.filter_map do |kind, noun|
        found = row.details[kind].to_h
        "#{Units.counted(found[:count], noun)} #{Units.bytes(found[:bytes])}" if found[:count].to_i.positive?
      end
      kinds.empty? ? "" : " (#{kinds.join(', ')})"
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
          shared = now.shared_bytes - before.shared_bytes if now.shared_bytes && before.shared_bytes
          Row.new(now.name, now.bytes - before.bytes, now.basis, shared_bytes: shared)
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
