# frozen_string_literal: true

require_relative "../support/arguments"
require_relative "../support/json_text"
require_relative "../support/wall_clock"

module Memintro
  # Writes figures as one line of text: logfmt after the word MEMORY, or a JSON object. No value can end the line or
  # look like another field: text that is not plain is quoted, and unprintable characters are escaped, bytes that are
  # not UTF-8 as `\xNN`. A field that is nil is left out. The field `time` is the time at which the line is made.
  #
  # @api private
  class MemoryLine
    # Formats of a line.
    FORMATS = %i[logfmt json].freeze
    # Longer text is cut, because clients choose the length of a path.
    MOST_CHARACTERS = 1_024

    # Text that needs no quotes.
    PLAIN = %r{\A[A-Za-z0-9_./:@%+,;~*&?!#$()\[\]{}<>|^'`-]+\z}
    ESCAPES = { "\n" => "\\n", "\r" => "\\r", "\t" => "\\t", "\"" => "\\\"", "\\" => "\\\\" }.freeze
    # Characters that a log's reader can print: no control characters, no line or paragraph separators, no characters
    # that change the direction of writing.
    UNPRINTABLE = /[^[:print:]]|[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/
    # Characters that stand between quotes unchanged, in JSON.
    PLAIN_JSON = /\A[ !#-\[\]-~]*\z/
    # Most lines fit into this.
    CAPACITY = 400
    private_constant :PLAIN, :ESCAPES, :UNPRINTABLE, :PLAIN_JSON, :CAPACITY

    # @param fields [Array<Symbol>] in the order of the line
    # @param format [Symbol] one of {FORMATS}
    def initialize(fields, format)
      @fields = fields
      @clock = WallClock.new
      format == :json ? write_json : write_logfmt
    end

    # @!method render(source)
    #   @param source [Object] answers each field but `time` by a method of its name
    #   @return [String] without a line's end

    # @param value [Object]
    # @return [String] as it stands behind a `=`
    def self.quote(value)
      text = value.to_s
      return text if text.ascii_only? && text.size < MOST_CHARACTERS && PLAIN.match?(text)

      %("#{escape(text)}")
    end

    # JSON has escapes of its own, but none for invalid bytes.
    #
    # @param value [Object]
    # @return [String] as it stands behind a `:`
    def self.json(value)
      text = value.to_s
      return text if value.is_a?(Numeric)
      return "\"#{text}\"" if text.ascii_only? && text.size < MOST_CHARACTERS && PLAIN_JSON.match?(text)

      text = utf8(text)
      text = text.scrub { |bytes| bytes.bytes.map { |byte| format("\\x%02X", byte) }.join } unless text.valid_encoding?
      JsonText.quote(text)
    end

    # @param text [String] of any encoding, or of none
    # @return [String] valid UTF-8 in one line
    def self.escape(text)
      utf8(text).each_char.map do |char|
        next char.bytes.map { |byte| format("\\x%02X", byte) }.join unless char.valid_encoding?

        ESCAPES[char] || (UNPRINTABLE.match?(char) ? char.codepoints.map { |c| format("\\u{%X}", c) }.join : char)
      end.join
    end

    # @param text [String]
    # @return [String] its first characters as UTF-8, perhaps invalid
    def self.utf8(text)
      return text.encode(Encoding::UTF_8, invalid: :replace, undef: :replace) unless text.encoding.ascii_compatible?

      text = text.dup.force_encoding(Encoding::UTF_8)
      text.size > MOST_CHARACTERS ? "#{text[0, MOST_CHARACTERS]}..." : text
    end

    private

    def write_logfmt
      write(@fields.map do |field|
        "value = #{value_of(field)}\n" \
          "line << ' #{field}=' << (::String === value ? ::Memintro::MemoryLine.quote(value) : value.to_s) " \
          "unless value.nil?"
      end, "MEMORY", "")
    end

    def write_json
      write(@fields.map do |field|
        "value = #{value_of(field)}\n" \
          "line << ',\"#{field}\":' << (::Numeric === value ? value.to_s : ::Memintro::MemoryLine.json(value)) " \
          "unless value.nil?"
      end, '{"event":"MEMORY"', "}")
    end

    # One method for the whole line, and one string that grows, take half as long as a loop over the fields. Making the
    # line is the most expensive part of a request's measurement. The names are names of methods and were checked
    # before.
    def write(parts, head, tail)
      instance_eval(<<~RUBY, __FILE__, __LINE__)
        # frozen_string_literal: true
        def render(source)
          line = ::String.new(#{head.dump}, capacity: #{CAPACITY})
          #{parts.join("\n")}
          line << #{tail.dump}
        end
      RUBY
    end

    def value_of(field)
      field == :time ? "@clock.text" : "source.#{field}"
    end
  end
end
