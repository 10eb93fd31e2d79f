# frozen_string_literal: true

require_relative "../support/names"

module Memintro
  module Control
    # As much JSON as one line of the protocol needs, both ways. Not the json gem: which of its versions a program
    # wants is the program's choice, made maybe after this was loaded.
    module Json
      # The text is not JSON, or nested too deeply.
      class Invalid < StandardError; end

      # Deepest nesting that is read.
      DEEPEST = 8
      # What has to be escaped in text, and what a terminal must not get.
      SPECIAL = Regexp.union(/["\\]/, Names::UNPRINTABLE)
      # Two-character escapes, read.
      ESCAPES = { "n" => "\n", "t" => "\t", "r" => "\r", "b" => "\b", "f" => "\f" }.freeze
      private_constant :DEEPEST, :SPECIAL, :ESCAPES

      # @param value [Hash, Array, String, Symbol, Numeric, true, false, nil]
      # @return [String] without a newline
      def self.generate(value)
        case value
        when Hash then "{#{value.map { |key, item| "#{text(key.to_s)}:#{generate(item)}" }.join(',')}}"
        when Array then "[#{value.map { |item| generate(item) }.join(',')}]"
        when Float then value.finite? ? value.to_s : "null"
        when Integer, true, false then value.to_s
        when nil then "null"
        else text(value.to_s)
        end
      end

      # @param line [String]
      # @return [Object] with text for keys
      # @raise [Invalid]
      def self.parse(line)
        raise Invalid, "it is not UTF-8" unless line.dup.force_encoding(Encoding::UTF_8).valid_encoding?

        # Positions are bytes: to find the n-th character of a text that is not ASCII, Ruby counts from its beginning.
        # Frozen, for otherwise each match keeps a copy.
        line = line.b.freeze
        value, position = value_at(line, 0, 0)
        return value if line.match?(END_OF_TEXT, position)

        raise Invalid, "something follows its end"
      end

      def self.text(string)
        string = Names.utf8(string)
        "\"#{string.gsub(SPECIAL) { |char| %w[" \\].include?(char) ? "\\#{char}" : format('\\u%04x', char.ord) }}\""
      end
      private_class_method :text

      TOKEN = /\G\s*(?:(?<open>[{\[])|"(?<text>(?:[^"\\\x00-\x1f]|\\.)*)"|(?<word>true|false|null)|
               (?<float>-?\d+(?:\.\d+(?:[eE][+-]?\d+)?|[eE][+-]?\d+))|(?<integer>-?\d+))/x
      COLON = /\G\s*:/
      SEPARATOR = /\G\s*([,\]}])/
      CLOSED = { "}" => /\G\s*}/, "]" => /\G\s*\]/ }.freeze
      END_OF_TEXT = /\G\s*\z/
      private_constant :TOKEN, :COLON, :SEPARATOR, :CLOSED, :END_OF_TEXT

      def self.value_at(line, position, depth)
        found = line.match(TOKEN, position)
        raise Invalid, "a value was expected at byte #{position}" if found.nil? || depth > DEEPEST

        after = found.end(0)
        case
        when found[:open] == "{" then object_at(line, after, depth)
        when found[:open] then array_at(line, after, depth)
        else [scalar(found), after]
        end
      end
      private_class_method :value_at

      def self.scalar(found)
        if found[:text] then unescape(found[:text].force_encoding(Encoding::UTF_8))
        elsif found[:float] then Float(found[:float])
        elsif found[:integer] then Integer(found[:integer], 10)
        elsif found[:word] != "null" then found[:word] == "true"
        end
      end
      private_class_method :scalar

      def self.unescape(text)
        return text unless text.include?("\\")

        text.gsub(/\\(?:u([dD][89abAB]\h\h)\\u([dD][c-fC-F]\h\h)|u(\h{4})|(.))/m) do
          high, low, unit, char = Regexp.last_match.captures
          if high
            [0x10000 + ((high.hex - 0xD800) << 10) + (low.hex - 0xDC00)].pack("U")
          elsif unit
            unit.match?(/\A[dD][89a-fA-F]/) ? "\uFFFD" : [unit.hex].pack("U")
          else
            ESCAPES.fetch(char, char)
          end
        end
      end
      private_class_method :unescape

      def self.object_at(line, position, depth)
        object = {}
        members(line, position, "}") do |at|
          key, at = value_at(line, at, depth + 1)
          colon = line.match(COLON, at)
          raise Invalid, "a key and a colon were expected at byte #{at}" unless key.is_a?(String) && colon

          object[key], at = value_at(line, colon.end(0), depth + 1)
          at
        end.then { |after| [object, after] }
      end
      private_class_method :object_at

      def self.array_at(line, position, depth)
        array = []
        members(line, position, "]") do |at|
          value, at = value_at(line, at, depth + 1)
          array << value
          at
        end.then { |after| [array, after] }
      end
      private_class_method :array_at

      # Yields the position of each member and takes the position after it.
      def self.members(line, position, close)
        ended = line.match(CLOSED.fetch(close), position)
        until ended
          position = yield position
          separator = line.match(SEPARATOR, position)
          unless separator && [",", close].include?(separator[1])
            raise Invalid, "a comma or #{close} was expected at byte #{position}"
          end

          position = separator.end(0)
          ended = separator[1] == close && separator
        end
        ended.end(0)
      end
      private_class_method :members
    end
  end
end
