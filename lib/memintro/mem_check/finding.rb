# frozen_string_literal: true

require_relative "../support/names"
require_relative "../support/units"

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

    # A finding at one native stack.
    # @api private
    class Finding
      # The name of each kind in reports.
      KINDS = {
        "leak" => "nothing points to",
        "indirect" => "only leaked blocks point to",
        "no_free" => "no free function",
        "grows" => "grows each time a test runs",
        "registered" => "registered, never taken back",
        "registered_twice" => "registered more than once",
        "invalid_read" => "invalid read", "invalid_write" => "invalid write", "invalid_free" => "invalid free",
        "error" => "error of Valgrind's"
      }.freeze
      # Advice for each kind.
      ADVICE = {
        "leak" => "free it where its last user is done with it, on every way out of the function (rb_raise leaves by " \
                  "longjmp and frees nothing)",
        "indirect" => "it goes with the block that holds it: see the leak above",
        "no_free" => "give the type a dfree function (RUBY_DEFAULT_FREE, if one free is enough), or each object " \
                     "leaves its data behind when it is collected",
        "grows" => "see what keeps them: a list or table that only grows needs a bound, or an end with its owner",
        "registered" => "call rb_gc_unregister_address before that memory is freed or its owner is collected, or " \
                        "mark the object in the owner's dmark instead",
        "registered_twice" => "register each address once: rb_gc_unregister_address takes back one registration",
        "invalid_read" => "the memory was freed, or is beyond the block",
        "invalid_write" => "the memory was freed, or is beyond the block",
        "invalid_free" => "free only what malloc returned, once, with the function that belongs to it",
        "error" => "see Valgrind's manual"
      }.freeze

      attr_reader :kind, :blocks, :bytes, :frames, :culprit, :ruby_lines, :subject, :detail, :live, :kind_of_valgrind

      # @param ruby_lines [Hash{String => Integer}] blocks by the line of Ruby that led there
      def initialize(kind:, frames:, culprit:, blocks: 0, bytes: 0, ruby_lines: {}, subject: nil, detail: nil,
                     live: nil, kind_of_valgrind: nil)
        @kind = kind
        @frames = frames
        @culprit = culprit
        @blocks = blocks
        @bytes = bytes
        @ruby_lines = ruby_lines
        @subject = subject
        @detail = detail
        @live = live
        @kind_of_valgrind = kind_of_valgrind || "Leak"
      end

      # @return [Frame] the gem's innermost frame
      def place
        frames.fetch(culprit)
      end

      # @return [String] the same for the same bug in another run: no addresses, counts or lines
      def fingerprint
        # Loaded only by processes that make findings.
        require "digest"
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
        [title, *own_frames.each_with_index.map { |frame, index| "    #{index == culprit ? '→' : ' '} #{frame}" },
         *lines_of_ruby,
         *held, *(detail && ["      #{Names.printable(detail)}"]),
         "      #{ADVICE.fetch(kind)}"]
      end

      # @return [Array<Frame>] the frames up to the library's outermost one: those beyond it are Ruby's call
      def own_frames
        frames.take((frames.rindex(&:watched) || culprit) + 1)
      end

      # @param other [Finding]
      # @return [Boolean] whether it is the same except for the lines of Ruby
      def same?(other)
        kind == other.kind && subject == other.subject && culprit == other.culprit && own_frames == other.own_frames
      end

      # @param other [Finding]
      # @return [Finding] both as one
      def +(other)
        lines = ruby_lines.merge(other.ruby_lines) { |_, one, two| one + two }
        Finding.new(kind: kind, frames: frames, culprit: culprit, ruby_lines: lines, subject: subject,
                    blocks: blocks + other.blocks, bytes: bytes + other.bytes, detail: detail || other.detail,
                    live: live && (live + other.live),
                    kind_of_valgrind: kind_of_valgrind)
      end

      private

      # A lost block whose address is still somewhere looks held.
      def held
        return [] unless kind == "leak" && live && live > blocks

        count = live - blocks
        ["      #{Units.counted(count, 'more block')} of this stack #{Units.noun(count, 'is', 'are')} live; " \
         "something has #{Units.noun(count, 'its address', 'their addresses')}, if only a stale word"]
      end

      # The first few, those with most blocks first.
      def lines_of_ruby
        return [] if ruby_lines.empty?

        first, *rest = ruby_lines.sort_by { |line, count| [-count, line] }
        shown = [first, *rest.first(2)].map do |line, count|
          "#{Names.printable(line.delete_prefix("#{Dir.pwd}/"))}#{" (#{Units.count(count)})" unless rest.empty?}"
        end
        more = " and #{Units.counted(rest.size - 2, 'more line')}" if rest.size > 2
        ["      called at #{shown.join(', ')}#{more}"]
      end

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
        when "grows" then "#{sum} that something holds, more each time a test runs,"
        when "registered"
          "#{Units.count(blocks)} #{Units.noun(blocks, 'address', 'addresses')} registered and never taken back"
        when "registered_twice" then "#{name} registered #{Units.count(blocks)} times"
        else "#{KINDS.fetch(kind)}#{blocks > 1 ? " (#{Units.count(blocks)} times)" : ''}"
        end
      end
    end
  end
end
