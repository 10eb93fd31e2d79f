# frozen_string_literal: true

require "shellwords"
require_relative "../error"
require_relative "../support/json_text"
require_relative "../support/names"
require_relative "../support/paths"
require_relative "../support/tool_call"
require_relative "finding"
require_relative "test_run"

module Memintro
  module MemCheck
    # A run of the tests under Valgrind, whose XML `memintro-tool` reads.
    # @api private
    class ValgrindRun < TestRun
      # Ruby reads uninitialised memory when it searches stacks for objects, so Valgrind does not report such reads.
      OPTIONS = %w[--tool=memcheck --leak-check=full --show-leak-kinds=definite --num-callers=50 --undef-value-errors=no
                   --error-limit=no --trace-children=no --child-silent-after-fork=yes --xml=yes].freeze
      # For each of Valgrind's kinds: ours, and how suppressions name it.
      KINDS = {
        "Leak_DefinitelyLost" => %w[leak Leak], "Leak_IndirectlyLost" => %w[indirect Leak],
        "InvalidRead" => %w[invalid_read Addr], "InvalidWrite" => %w[invalid_write Addr],
        "InvalidFree" => %w[invalid_free Free], "MismatchedFree" => %w[invalid_free Free],
        "SyscallParam" => %w[error Param], "Overlap" => %w[error Overlap], "InvalidJump" => %w[error Jump]
      }.freeze
      # Beginnings of the names of Valgrind's own files.
      VALGRIND = /vgpreload|valgrind/.freeze
      private_constant :OPTIONS, :KINDS, :VALGRIND

      # @param config [Configuration]
      def initialize(config)
        super
        @root = "#{File.realpath(Dir.pwd)}/"
        @loaded = {}
      end

      # @return [Hash{String => String}] with a variable that makes Ruby 3.4 and later free its own memory at its end
      def environment(_folder)
        refuse
        { "RUBY_FREE_AT_EXIT" => "1" }
      end

      # @return [String]
      def prefix(folder)
        words = [@config.valgrind, *OPTIONS, "--xml-file=#{File.join(folder, '%p.xml')}", *@config.valgrind_options]
        "#{Shellwords.join(words).gsub('\\%', '%')} "
      end

      # @return [Found]
      # @raise [Error] if there is no verdict
      def read(folder, status)
        files = Dir[File.join(folder, "*.xml")].sort
        raise Error, "valgrind wrote nothing: it could not run the tests" if files.empty?

        answers = files.map { |file| ValgrindRun.parse(file) }
        answers.each { |answer| add(answer.fetch("errors")) }
        return @found if answers.all? { |answer| answer["whole"] }

        signal = signal_of(status)
        ended = signal ? " (the tests were ended by signal #{signal})" : ""
        raise Error, "valgrind's output ends in the middle#{ended}: leaks are searched at the end"
      end

      # @param file [String] XML of Valgrind's
      # @return [Hash] errors, and whether it is whole
      # @raise [Error] if it is none
      def self.parse(file)
        raise Error, "the tool that reads XML is not built: there is no #{Paths.tool}" unless File.file?(Paths.tool)

        text, error, status = ToolCall.capture("valgrind-xml", file)
        unless status.success?
          raise Error, error.force_encoding(Encoding::UTF_8).scrub("?").strip.delete_prefix("memintro: ")
        end

        JsonText.parse(text.force_encoding(Encoding::UTF_8))
      rescue JsonText::Invalid, SystemCallError => e
        raise Error, "valgrind's output cannot be read: #{e.message}"
      end

      private

      def refuse
        program = @config.valgrind
        folders = ENV["PATH"].to_s.split(":")
        known = program.include?("/") ? [program] : folders.map { |folder| File.join(folder, program) }
        return if known.any? { |file| File.file?(file) && File.executable?(file) }

        raise Error, "#{Names.printable(program.b)} is not installed: apt install valgrind, or take " \
                     "backend: :memintro, which needs nothing"
      end

      def add(errors)
        errors.each do |error|
          kind, name = KINDS[error["kind"]] || (error["kind"].start_with?("Leak") ? nil : ["error", error["kind"]])
          next unless kind

          frames = error["frames"].map { |frame| frame(frame) }
          culprit = @rules.culprit(frames) or next
          @found.findings << Finding.new(kind: kind, frames: frames, culprit: culprit, blocks: error["blocks"],
                                         bytes: error["bytes"], detail: error["what"], kind_of_valgrind: name)
        end
      end

      def frame(frame)
        library = frame["obj"]
        file = frame["file"]
        file = File.join(frame["dir"], file) if file && frame["dir"] && !file.start_with?("/")
        Frame.new(function: frame["fn"], library: library, file: file, line: frame["line"], watched: watched?(library))
      end

      def watched?(library)
        return false if library.nil? || library.match?(VALGRIND)

        names = @config.binaries
        file = File.basename(library)
        return names.any? { |name| file == name || file.start_with?("#{name}.so") } unless names.empty?

        rest = library.delete_prefix(@root)
        rest != library && rest.end_with?(".so") && !rest.match?(%r{(?:\A|/)vendor/})
      end
    end
  end
end
