# frozen_string_literal: true

require_relative "../error"
require_relative "../support/names"

module Memintro
  module MemCheck
    # Files in Valgrind's format with findings to leave out.
    # @api private
    class Suppressions
      # Greatest size of such a file.
      MOST_BYTES = 4 << 20
      # Frames of one suppression.
      MOST_FRAMES = 64
      # The first frames of Valgrind's stacks of blocks, which memintro's stacks lack.
      ALLOCATORS = %w[malloc calloc realloc memalign posix_memalign aligned_alloc _Znwm _Znam
                      operator\ new(unsigned\ long)].freeze
      VALGRIND_OBJECT = "/usr/libexec/valgrind/vgpreload_memcheck-amd64-linux.so"
      # By the first letters of Valgrind's kinds.
      PREFIXES = { "Leak" => "Leak", "Addr" => "Addr", "Free" => "Free", "Cond" => "Cond", "Value" => "Value",
                   "Param" => "Param", "Jump" => "Jump", "Overlap" => "Overlap" }.freeze
      private_constant :MOST_BYTES, :MOST_FRAMES, :ALLOCATORS, :VALGRIND_OBJECT, :PREFIXES

      # One suppression: its name, its kinds, and patterns of frames.
      Suppression = Struct.new(:name, :kinds, :frames)

      # @param files [Array<String>]
      # @return [Suppressions]
      # @raise [Error] if one cannot be read, or has another form
      def self.read(files)
        new(files.flat_map { |file| Parser.new(file).read })
      end

      def initialize(list)
        @list = list
      end

      # @param finding [Finding]
      # @return [Suppression, nil] the first that fits
      def matching(finding)
        @list.find do |one|
          one.kinds.any? { |kind| finding.kind_of_valgrind.start_with?(kind) } && fits?(one.frames, finding)
        end
      end

      # @param pattern [String] with `*` and `?`
      # @param text [String]
      # @return [Boolean] whether they match. The number of steps is at most the product of both lengths
      def self.like?(pattern, text)
        star = mark = nil
        at = place = 0
        while place < text.length
          if at < pattern.length && pattern[at] == "*"
            star = at
            mark = place
            at += 1
          elsif at < pattern.length && (pattern[at] == "?" || pattern[at] == text[place])
            at += 1
            place += 1
          elsif star
            at = star + 1
            place = (mark += 1)
          else
            return false
          end
        end
        at += 1 while pattern[at] == "*"
        at == pattern.length
      end

      private

      # The positions in the stack that the patterns so far can reach, pattern by pattern.
      def fits?(patterns, finding)
        frames = finding.frames
        is_ours = finding.kind_of_valgrind == "Leak" && !frames.first&.library.to_s.include?("vgpreload")
        frames = [:allocator, *frames] if is_ours
        places = [0]
        patterns.each do |pattern|
          places = if pattern == "..."
                     (places.min..frames.size).to_a
                   else
                     places.select { |place| place < frames.size && like?(pattern, frames[place]) }.map(&:succ)
                   end
          return false if places.empty?
        end
        true
      end

      def like?(pattern, frame)
        where, wanted = pattern
        return allocator?(where, wanted) if frame == :allocator

        case where
        when "fun" then Suppressions.like?(wanted, frame.function.to_s)
        when "obj" then Suppressions.like?(wanted, frame.library.to_s)
        else
          file = File.basename(frame.file.to_s)
          [file, "#{file}:#{frame.line}"].any? { |text| Suppressions.like?(wanted, text) }
        end
      end

      def allocator?(where, wanted)
        case where
        when "fun" then ALLOCATORS.any? { |name| Suppressions.like?(wanted, name) }
        when "obj" then Suppressions.like?(wanted, VALGRIND_OBJECT)
        else false
        end
      end

      # Reads one file.
      # @api private
      class Parser
        # @param file [String]
        def initialize(file)
          @file = file
        end

        # @return [Array<Suppression>]
        # @raise [Error]
        def read
          wrong("is larger than #{MOST_BYTES >> 20} MiB") if File.size(@file) > MOST_BYTES
          wrong("is no file") unless File.file?(@file)
          text = File.binread(@file).force_encoding(Encoding::UTF_8).scrub("?")
          @lines = text.each_line(chomp: true).with_index(1).map { |line, number| [line.strip, number] }
          @lines.reject! { |line, _| line.empty? || line.start_with?("#") }
          list = []
          list << suppression until @lines.empty?
          list
        rescue SystemCallError => e
          raise Error, "suppressions #{shown}: #{e.message.sub(/ @ .*/m, '')}"
        end

        private

        def shown
          Names.printable(@file.b)
        end

        def wrong(what, number = nil)
          raise Error, "suppressions #{shown}#{number && ":#{number}"}: #{what}"
        end

        def suppression
          line, first = @lines.shift
          wrong("expected {, and found #{Names.printable(line[0, 60].b)}", first) unless line == "{"
          body = []
          loop do
            line, number = @lines.shift
            wrong("the suppression that begins here has no }", first) unless line
            break if line == "}"

            wrong("expected } before another {", number) if line == "{"
            body << [line, number]
          end
          wrong("a suppression needs a name, a kind and frames", first) if body.size < 3
          name, kind, *frames = body
          frames.reject! { |text, _| text.start_with?("match-leak-kinds:") }
          Suppression.new(name[0], kinds(kind), frames(frames, first))
        end

        def kinds(line)
          text, number = line
          tools, kinds = text.split(":", 2)
          found = Names.printable(text[0, 60].b)
          wrong("expected a kind such as Memcheck:Leak, and found #{found}", number) unless kinds
          return [] unless tools.split(",").include?("Memcheck")

          kinds.split(",").map { |kind| PREFIXES.keys.find { |prefix| kind.start_with?(prefix) } || kind }
        end

        def frames(lines, first)
          wrong("more than #{MOST_FRAMES} frames", first) if lines.size > MOST_FRAMES
          lines.filter_map do |text, number|
            next "..." if text == "..."

            where, wanted = text.split(":", 2)
            unless %w[fun obj src].include?(where) && !wanted.to_s.empty?
              # The line after the kind of a system call's parameter names the parameter.
              next if text.match?(/\A\w+\([\w.\[\]]+\)\z/)

              wrong("expected fun:, obj:, src: or ..., and found #{Names.printable(text[0, 60].b)}", number)
            end
            [where, wanted]
          end
        end
      end
    end
  end
end
