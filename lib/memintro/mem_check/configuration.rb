# frozen_string_literal: true

require_relative "../support/files"

module Memintro
  module MemCheck
    # The settings of a check. Each task has a copy, made when it is defined.
    class Configuration
      # Names of all settings.
      SETTINGS = %i[binary_name backend skipped_ruby_functions suppressions baseline update_baseline junit sarif
                    annotations exit_status repeat seconds valgrind valgrind_options output].freeze
      # The programs that run the tests.
      BACKENDS = %i[memintro valgrind].freeze
      # The variable that requests a new baseline.
      UPDATE = "MEMINTRO_UPDATE_BASELINE"

      # @return [String, Array<String>, nil] names of the gem's libraries, without `.so`; nil: all libraries below the
      #   current folder
      attr_reader :binary_name
      # @return [Symbol] `:memintro` (the default), or `:valgrind`, which also finds invalid reads and writes
      attr_reader :backend
      # @return [Array<String, Regexp>] further functions that call back into Ruby: memory that is allocated below
      #   them does not belong to the gem
      attr_reader :skipped_ruby_functions
      # @return [Array<String>] files in Valgrind's format; those in `suppressions/` by default
      attr_reader :suppressions
      # @return [String, nil] the file of accepted findings; nil: none
      attr_reader :baseline
      # @return [Boolean] write the baseline anew, and accept all; by default if `MEMINTRO_UPDATE_BASELINE` is 1
      attr_reader :update_baseline
      # @return [String, nil] a file to write in JUnit's form
      attr_reader :junit
      # @return [String, nil] a file to write in SARIF 2.1.0
      attr_reader :sarif
      # @return [Boolean] write annotations for GitHub; by default where `GITHUB_ACTIONS` is true
      attr_reader :annotations
      # @return [Integer] the exit status if the tests pass and there are findings; 3 by default
      attr_reader :exit_status
      # @return [Boolean] run each test again, 6 times at least, and report blocks that grow with each run; false by
      #   default
      attr_reader :repeat
      # @return [Integer] seconds that the search for leaks may take
      attr_reader :seconds
      # @return [String] Valgrind's program
      attr_reader :valgrind
      # @return [Array<String>] more options for Valgrind
      attr_reader :valgrind_options
      # @return [#puts] where the report goes; standard error by default
      attr_reader :output

      # @api private
      def initialize(**options)
        @binary_name = @baseline = @junit = @sarif = nil
        @backend = :memintro
        @skipped_ruby_functions = []
        @suppressions = Dir["suppressions/*.supp"].sort
        @update_baseline = ENV[UPDATE] == "1"
        @annotations = ENV["GITHUB_ACTIONS"] == "true"
        @exit_status = 3
        @repeat = false
        @seconds = 120
        @valgrind = "valgrind"
        @valgrind_options = []
        @output = $stderr
        set(options)
      end

      SETTINGS.each do |name|
        define_method(:"#{name}=") do |value|
          check(name, value)
          instance_variable_set(:"@#{name}", value)
        end
      end

      # @api private
      # @param options [Hash{Symbol => Object}]
      # @return [self]
      # @raise [ArgumentError] if a name or a value is wrong
      def set(options)
        options.each do |name, value|
          unless SETTINGS.include?(name)
            raise ArgumentError, "there is no setting #{name} of a memory check; there are #{SETTINGS.join(', ')}"
          end

          public_send(:"#{name}=", value)
        end
        self
      end

      # @api private
      # @return [Configuration]
      def copy(**options)
        dup.set(options)
      end

      # @api private
      # @return [Array<String>] without the ends that file names have
      def binaries
        Array(binary_name).map { |name| name.delete_suffix(".so").delete_suffix(".bundle") }
      end

      # @api private
      # @return [Boolean] under Valgrind nothing is repeated
      def repeats?
        repeat && backend == :memintro
      end

      # @api private
      # @return [String] a description of the checked libraries
      def called
        return "the libraries below #{Files.current_folder}" if binaries.empty?

        binaries.map { |name| "#{name}.so" }.join(", ")
      end

      private

      TEXT = ->(value) { value.is_a?(String) && !value.empty? && !value.include?("\0") }
      FLAG = ->(value) { [true, false].include?(value) }
      CHECKS = {
        binary_name: ["a String or Strings, without folder", lambda { |value|
          value.nil? || (Array(value).all?(&TEXT) && Array(value).none? { |name| name.include?("/") })
        }],
        backend: [":memintro or :valgrind", ->(value) { BACKENDS.include?(value) }],
        skipped_ruby_functions: ["Strings or Regexps", lambda { |value|
          value.is_a?(Array) && value.all? { |one| TEXT.call(one) || one.is_a?(Regexp) }
        }],
        suppressions: ["names of files", ->(value) { value.is_a?(Array) && value.all?(&TEXT) }],
        valgrind_options: ["Strings", ->(value) { value.is_a?(Array) && value.all?(&TEXT) }],
        exit_status: ["from 1 to 125", ->(value) { value.is_a?(Integer) && value.between?(1, 125) }],
        seconds: ["from 1 to 600", ->(value) { value.is_a?(Integer) && value.between?(1, 600) }],
        valgrind: ["a program", TEXT],
        output: ["something with puts", ->(value) { value.respond_to?(:puts) }],
        **%i[baseline junit sarif].to_h { |name| [name, ["a file", ->(value) { value.nil? || TEXT.call(value) }]] },
        **%i[update_baseline annotations repeat].to_h { |name| [name, ["true or false", FLAG]] }
      }.freeze
      private_constant :TEXT, :FLAG, :CHECKS

      def check(name, value)
        words, test = CHECKS.fetch(name)
        return if test.call(value)

        raise ArgumentError, "#{name} of a memory check must be #{words}, and is #{value.inspect}"
      end
    end
  end
end
