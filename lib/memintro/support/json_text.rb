# frozen_string_literal: true

require_relative "names"

module Memintro
  # Writes plain values as JSON by hand: a process's own json gem may not have been chosen yet, and nothing can be
  # required in a signal handler.
  module JsonText
    # What RFC 8259 demands to be escaped, and all else that a terminal acts upon.
    SPECIAL = /["\\#{Names::UNPRINTABLE.source}]/
    # Of these what texts have that are ASCII, as most are: looked for in a tenth of the time.
    ASCII_SPECIAL = /["\\\x00-\x1f\x7f]/
    # Short forms.
    ESCAPES = { "\"" => "\\\"", "\\" => "\\\\", "\n" => "\\n", "\t" => "\\t", "\r" => "\\r" }.freeze
    private_constant :SPECIAL, :ASCII_SPECIAL, :ESCAPES

    # @api private
    # @param value [Hash, Array, String, Symbol, Numeric, true, false, nil] nested as deep as one likes
    # @param exact [Boolean] whether text that is not UTF-8 becomes `{"base64": …}`, which {restore} takes back; else
    #   its bytes are shown as `\xNN`
    # @return [String]
    def self.dump(value, exact: false)
      append(+"", value, exact)
    end

    # What a JSON parser read, with texts that are not UTF-8 as they were.
    # @api private
    def self.restore(value)
      case value
      when Hash
        return value["base64"].to_s.unpack1("m0") if value.size == 1 && value.key?("base64")

        value.transform_values { |item| restore(item) }
      when Array then value.map { |item| restore(item) }
      else value
      end
    end

    # @return [String] the text in UTF-8, or as binary if that is not what it is: equal names are equal then, whatever
    #   encoding Ruby had them in
    # @api private
    def self.normal(text)
      return text.to_s if text.is_a?(Symbol) && text.to_s.ascii_only?

      text = text.to_s
      return text if text.encoding == Encoding::UTF_8 && text.valid_encoding?

      text = text.dup.force_encoding(Encoding::UTF_8)
      text.valid_encoding? ? text : text.force_encoding(Encoding::BINARY)
    end

    def self.append(buffer, value, exact)
      case value
      when String, Symbol then buffer << text(value.to_s, exact)
      when Hash then list(buffer, "{", value, "}") { |key, item| append(buffer << key(key), item, exact) }
      when Array then list(buffer, "[", value, "]") { |item| append(buffer, item, exact) }
      when nil then buffer << "null"
      when Float then buffer << (value.finite? ? value.to_s : "null")
      else buffer << value.to_s
      end
    end
    private_class_method :append

    # Rows of a long list stand on a line each, so that line tools can be used on a file.
    def self.list(buffer, left, items, right)
      between = items.size > 8 ? ",\n" : ","
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

    def self.quote(text)
      special = text.ascii_only? ? ASCII_SPECIAL : SPECIAL
      text = text.gsub(special) { |char| ESCAPES[char] || format("\\u%04x", char.ord) } if text.match?(special)
      "\"#{text}\""
    end
    private_class_method :quote
  end
end
