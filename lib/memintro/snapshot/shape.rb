# frozen_string_literal: true

require_relative "../support/arguments"
require_relative "../support/figures"

module Memintro
  class Snapshot
    # The required form of a saved snapshot. All code that reads one relies on it: a wrong value is found here, not
    # where it is computed with.
    #
    # A kind is the name of a test, with a ? if the value may be nil; an Array with the kind of all its items; or a Hash
    # of kinds by key, with the kind of all other values under nil. Keys without a kind are ignored, because a newer
    # memintro may write more keys.
    # @api private
    module Shape
      # Numbers that can be squared, multiplied and divided by each other without becoming infinite.
      SANE = (1e-30..1e30)
      # Each test, and how messages name what passes it.
      TESTS = {
        integer: ["an Integer", ->(value) { value.is_a?(Integer) && sane?(value) }],
        number: ["a number", ->(value) { value.is_a?(Numeric) && sane?(value) }],
        text: ["a text", ->(value) { value.is_a?(String) }],
        # For values that are not names of the system, which may be any bytes.
        utf8: ["a text in UTF-8", ->(value) { value.is_a?(String) && utf8?(value) }],
        flag: ["true or false", ->(value) { [true, false].include?(value) }],
        # GC.stat has Integers alone so far.
        counter: ["a number", ->(value) { value.is_a?(Numeric) ? sane?(value) : [true, false, nil].include?(value) }],
        figures: ["an object of integers", ->(value) { value.is_a?(Hash) && value.each_value.all?(Integer) }],
        callers: ["samples and callers, each with its frames", ->(value) { callers?(value) }],
        plain: ["a value with numbers up to 1e30", ->(value) { plain?(value) }]
      }.freeze
      TESTS_WITH_NONE = TESTS.to_h { |name, test| [:"#{name}?", test] }.freeze

      ROWS = [{ "name" => :text, "count" => :integer, "bytes" => :integer? }].freeze
      TOTALS = Figures::OF_PROCESS.map(&:name).freeze
      SITE = Figures::OF_BLOCKS.map(&:name).freeze - %w[live_blocks mean_lifespan]
      DOUBTS = [*Figures::OF_PROCESS_ESTIMATED, *Figures.names(Figures::SITE, :sum, :derived)]
               .map { |name| "#{name}_standard_error" }.freeze
      ESTIMATE = { "estimated" => :flag?, **DOUBTS.to_h { |name| [name, :number?] } }.freeze
      POOL = %w[slot_size pages slots live_slots free_slots sparse_pages sparse_live_slots].freeze
      HEAP = %w[pages slots live_slots free_slots sparse_pages sparse_live_slots empty_pages].freeze
      HOLDER = { "name" => :text, "count" => :integer, "pages" => :integer }.freeze
      OCCUPANCY = HEAP.to_h { |name| [name, :integer] }
                      .merge("pools" => [POOL.to_h { |name| [name, :integer] }], "holders" => [HOLDER], nil => :plain)

      # Only the used keys of `process`, and of the whole file.
      PROCESS = { "pid" => :integer, "program" => :text?, "ruby" => :utf8?, "platform" => :utf8?, "memintro" => :utf8?,
                  "mode" => :utf8?, "tracking" => :flag, "preloaded" => :flag?, "generation" => :integer?,
                  "time" => :utf8?, "sample_bytes" => :integer?, "epoch" => :integer?, "started" => :integer?,
                  "problem" => :text?, "rss_bytes" => :integer?, nil => :plain }.freeze
      # What every snapshot has.
      WHOLE = {
        "time" => :utf8, "monotonic_s" => :number, "parts" => [:utf8], "process" => PROCESS,
        "memory" => { nil => :integer }, "gc" => { nil => :counter }, "call_sites_left_out" => :integer,
        "totals" => { **TOTALS.to_h { |name| [name, :integer] }, **ESTIMATE },
        "call_sites" => [{ "kind" => :utf8, "name" => :text, "path" => :text?, "lineno" => :integer?,
                           **SITE.to_h { |name| [name, :integer] }, "mean_lifespan" => :number?,
                           "objects" => :figures?, "native_callers" => :callers?, **ESTIMATE }]
      }.freeze
      # Keys that a snapshot may lack.
      REST = {
        "missing" => { nil => :text }, "account" => { nil => :integer },
        "account_private" => { nil => :integer },
        "cgroup" => { "path" => :text?, nil => :integer? },
        "gc_heaps" => { nil => { nil => :counter } }, "types" => ROWS, "classes" => ROWS, "internals" => ROWS,
        "iseqs" => { "count" => :integer, "bytes" => :integer, "paths" => ROWS, "locations" => ROWS },
        "occupancy" => OCCUPANCY
      }.freeze
      [TESTS, TESTS_WITH_NONE, WHOLE, REST].each { |constant| Ractor.make_shareable(constant) }
      private_constant :SANE, :TESTS, :TESTS_WITH_NONE, :ROWS, :TOTALS, :SITE, :DOUBTS, :ESTIMATE, :POOL, :HEAP,
                       :HOLDER, :OCCUPANCY, :PROCESS, :WHOLE, :REST

      # @param found [Hash] what a JSON parser made of the file
      # @return [nil]
      # @raise [TypeError] naming the first value that is something else
      def self.check(found)
        wrong = trouble(found, WHOLE) || trouble(found, REST.reject { |name, _| found[name].nil? })
        raise TypeError, "its #{wrong.delete_prefix('.')}" if wrong
      end

      # @return [String, nil] where within the value, and what is wrong; nil: nothing
      def self.trouble(value, kind)
        case kind
        when Array then trouble_in_list(value, kind.first)
        when Hash then trouble_in_hash(value, kind)
        else
          name, test = TESTS[kind] || (value.nil? ? return : TESTS_WITH_NONE.fetch(kind))
          " is #{Arguments.shown(value)}, and must be #{name}" unless test.call(value)
        end
      end
      private_class_method :trouble

      def self.trouble_in_list(value, kind)
        return " is #{Arguments.shown(value)}, and must be a list" unless value.is_a?(Array)

        value.each_with_index do |item, index|
          found = trouble(item, kind)
          return "[#{index}]#{found}" if found
        end
        nil
      end
      private_class_method :trouble_in_list

      def self.trouble_in_hash(value, kinds)
        return " is #{Arguments.shown(value)}, and must be an object" unless value.is_a?(Hash)

        kinds.each do |key, kind|
          found = key && trouble(value[key], kind)
          return ".#{key}#{found}" if found
        end
        rest = kinds[nil]
        rest && value.each do |key, item|
          found = kinds.key?(key) ? nil : trouble(item, rest)
          return ".#{key}#{found}" if found
        end
        nil
      end
      private_class_method :trouble_in_hash

      def self.utf8?(text)
        text.encoding == Encoding::UTF_8 && text.valid_encoding?
      end
      private_class_method :utf8?

      def self.sane?(number)
        number.zero? || SANE.cover?(number.abs)
      end
      private_class_method :sane?

      def self.callers?(found)
        counts = ->(one, names) { names.all? { |name| one[name].is_a?(Integer) && sane?(one[name]) } }
        return false unless found.is_a?(Hash) && counts.call(found, %w[samples live_samples])

        callers = found["callers"]
        callers.is_a?(Array) && callers.all? do |one|
          one.is_a?(Hash) && counts.call(one, %w[samples live_samples]) && shares?(one) &&
            one["frames"].is_a?(Array) && one["frames"].all?(String) && (one["location"] || "").is_a?(String)
        end
      end
      private_class_method :callers?

      def self.shares?(caller)
        [caller["share"], caller["live_share"] || 0].all? { |share| share.is_a?(Numeric) && sane?(share) }
      end
      private_class_method :shares?

      def self.plain?(value)
        case value
        when Hash then value.each_value.all? { |item| plain?(item) }
        when Array then value.all? { |item| plain?(item) }
        when Numeric then sane?(value)
        else true
        end
      end
      private_class_method :plain?
    end
  end
end
