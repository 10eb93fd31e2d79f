# frozen_string_literal: true

require "digest"
require_relative "../../support/names"
require_relative "../../support/units"

module Memintro
  module MemCheck
    # A function on a stack.
    # @api private
    Frame = Struct.new(:function, :library, :file, :line, :watched, keyword_init: true) do
      # @return [String] such as `tree_add (tree.c:42)`, `xmalloc in libruby-3.1.so.3.1`
      def to_s
        name = Names.printable(function || "???")
        place = file ? " (#{Names.printable(File.basename(file))}#{":#{line}" if line})" : ""
        watched || library.nil? ? "#{name}#{place}" : "#{name}#{place} in #{Names.printable(File.basename(library))}"
      end

      # @return [Hash{String => Object}]
      def to_h
        members.to_h { |name| [name.to_s, self[name]] }
      end
    end

    # What was found at one stack.
    # @api private
    class Finding
      # What each kind is called in reports.
      KINDS = {
        "leak" => "nothing points to",
        "indirect" => "only leaked blocks point to",
        "no_free" => "no free function",
        "registered" => "registered, never taken back",
        "registered_twice" => "registered more than once",
        "invalid_read" => "invalid read", "invalid_write" => "invalid write", "invalid_free" => "invalid free",
        "error" => "error of Valgrind's"
      }.freeze
      # What to do about each kind.
      ADVICE = {
        "leak" => "free it where its last user is done with it, on every way out of the function (rb_raise leaves by " \
                  "longjmp and frees nothing)",
        "indirect" => "it goes with the block that holds it: see the leak above",
        "no_free" => "give the type a dfree function (RUBY_DEFAULT_FREE, if one free is enough), or each object " \
                     "leaves its data behind when it is collected",
        "registered" => "call rb_gc_unregister_address before that memory is freed or its owner is collected, or mark " \
                        "the object in the owner's dmark instead",
        "registered_twice" => "register each address once: rb_gc_unregister_address takes back one registration",
        "invalid_read" => "the memory was freed, or is beyond the block",
        "invalid_write" => "the memory was freed, or is beyond the block",
        "invalid_free" => "free only what malloc returned, once, with the function that belongs to it",
        "error" => "see Valgrind's manual"
      }.freeze

      attr_reader :kind, :blocks, :bytes, :frames, :culprit, :ruby_line, :subject, :detail, :kind_of_valgrind

      def initialize(kind:, frames:, culprit:, blocks: 0, bytes: 0, ruby_line: nil, subject: nil, detail: nil,
                     kind_of_valgrind: nil)
        @kind = kind
        @frames = frames
        @culprit = culprit
        @blocks = blocks
        @bytes = bytes
        @ruby_line = ruby_line
        @subject = subject
        @detail = detail
        @kind_of_valgrind = kind_of_valgrind || "Leak"
      end

      # @return [Frame] the gem's innermost frame
      def place
        frames.fetch(culprit)
      end

      # @return [String] the same for the same mistake in another run: no addresses, counts or lines
      def fingerprint
        names = frames.drop(culprit).select(&:watched).map { |frame| frame.function || "?" }
        Digest::SHA256.hexdigest([kind, subject.to_s, File.basename(place.library.to_s), *names].join("\0"))[0, 16]
      end

      # @return [String] one line
      def title
        from = "#{Names.printable(place.function || '???')}#{place.file && " (#{where})"}"
        "#{what} #{joint} #{from}"
      end

      # @return [String] such as `tree.c:42`
      def where
        "#{Names.printable(File.basename(place.file))}#{":#{place.line}" if place.line}"
      end

      # @return [Array<String>]
      def lines
        ["#{title}#{" at #{Names.printable(ruby_line)}" if ruby_line}",
         *frames.each_with_index.map { |frame, index| "    #{index == culprit ? '→' : ' '} #{frame}" },
         *(detail && ["      #{Names.printable(detail)}"]),
         "      #{ADVICE.fetch(kind)}"]
      end

      private

      def sum
        "#{Units.counted(blocks, 'block')} (#{Units.bytes(bytes)})"
      end

      def joint
        kind.start_with?("registered", "invalid", "error") ? "by" : "from"
      end

      def what
        name = subject && Names.printable(subject)
        case kind
        when "leak" then "#{sum} that nothing points to"
        when "indirect" then "#{sum} that only leaked blocks point to"
        when "no_free" then "#{sum} of #{name || 'untyped T_DATA'}, which has no free function,"
        when "registered" then "#{Units.counted(blocks, 'address')} registered and never taken back".sub("addresss", "addresses")
        when "registered_twice" then "#{name} registered #{Units.count(blocks)} times"
        else "#{KINDS.fetch(kind)}#{blocks > 1 ? " (#{Units.count(blocks)} times)" : ''}"
        end
      end
    end
  end
end
