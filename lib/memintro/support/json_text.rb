# frozen_string_literal: true

require_relative "names"

module Memintro
  # Writes plain values as JSON, and reads JSON. Does not use the json gem, because the program chooses its version
  # and may load it later, and because a signal handler cannot require it. The extension does the reading.
  module JsonText
    # The text is not JSON, or nested too deeply.
    class Invalid < StandardError; end

    # Deepest nesting that is read.
    DEEPEST = 64
    # Characters that RFC 8259 requires to be escaped, and all others that a terminal obeys.
    SPECIAL = /["\\#{Names::UNPRINTABLE.source}]/
    # The same characters within ASCII. This takes a tenth of the time, because most texts are ASCII.
    ASCII_SPECIAL = /["\\\x00-\x1f\x7f]/
    # Short forms.
    ESCAPES = { "\"" => "\\\"", "\\" => "\\\\", "\n" => "\\n", "\t" => "\\t", "\r" => "\\r" }.freeze
    # A list of this many items or more is long.
    LONG = 8
    private_constant :SPECIAL, :ASCII_SPECIAL, :ESCAPES, :LONG

    # @api private
    # @param value [Hash, Array, String, Symbol, Numeric, true, false, nil] nested as deep as one likes
    # @param exact [Boolean] whether text that is not UTF-8 becomes `{"base64": …}`, as snapshots have it; else
    #   its bytes are shown as `\xNN`
    # @return [String] rows of a long list stand on a line each, so that line tools can be used on a file
    def self.dump(value, exact: false)
      append(+"", value, exact, LONG)
    end

    # @api private
    # @param value [Object] as of {dump}
    # @return [String] in one line, without its end
    def self.line(value)
      append(+"", value, false, Float::INFINITY)
    end

    # @api private
    # @param text [String] not the program's own: anything
    # @param deepest [Integer] lists and objects that may be within each other
    # @return [Object] with text for keys; numbers from 2^64 on are rounded
    # @raise [Invalid]
    def self.parse(text, deepest: DEEPEST)
      # The command has no extension until it needs one, and another of its threads may be loading it now.
      require_relative "native" unless defined?(Native) && Native.respond_to?(:parse_json)
      Native.parse_json(text, deepest)
    rescue ArgumentError => e
      raise Invalid, e.message
    end

    # @return [String] the text in UTF-8, or as binary if it is not valid UTF-8: equal names are equal then, whatever
    #   encoding Ruby had them in
    # @api private
    def self.normal(text)
      return text.to_s if text.is_a?(Symbol) && text.to_s.ascii_only?

      text = text.to_s
      return text if text.encoding == Encoding::UTF_8 && text.valid_encoding?

      text = text.dup.force_encoding(Encoding::UTF_8)
      text.valid_encoding? ? text : text.force_encoding(Encoding::BINARY)
    end

    def self.append(buffer, value, exact, long)
      case value
      when String, Symbol then buffer << text(value.to_s, exact)
      when Hash then list(buffer, "{", value, "}", long) { |key, item| append(buffer << key(key), item, exact, long) }
      when Array then list(buffer, "[", value, "]", long) { |item| append(buffer, item, exact, long) }
      when nil then buffer << "null"
      when Float then buffer << (value.finite? ? value.to_s : "null")
      else buffer << value.to_s
      end
    end
    private_class_method :append

    def self.list(buffer, left, items, right, long)
      between = items.size > long ? ",\n" : ","
      buffer << left
      first = true
      items.each do |*item|
        buffer << between unless first
        first = false
        yield(*item)
      end
      buffer << right
    end
    private_class_method :list

    def self.key(key)
      "#{quote(Names.utf8(key.to_s))}:"
    end
    private_class_method :key

    def self.text(string, exact)
      normal = normal(string)
      return "{\"base64\":\"#{[normal].pack('m0')}\"}" if exact && normal.encoding == Encoding::BINARY

      quote(Names.utf8(normal))
    end
    private_class_method :text

    # @api private
    # @param text [String] in UTF-8
    # @return [String] as it stands in JSON
    def self.quote(text)
      special = text.ascii_only? ? ASCII_SPECIAL : SPECIAL
      text = text.gsub(special) { |char| ESCAPES[char] || format("\\u%04x", char.ord) } if text.match?(special)
      "\"#{text}\""
    end
  end
end
