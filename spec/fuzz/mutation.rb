# frozen_string_literal: true

require "json"

module Fuzz
  # Makes wrong texts from right ones: some of their bytes are others, or one of their JSON values is of another kind.
  # The same seed makes the same texts.
  class Mutation
    # Replacements of a value.
    VALUES = [nil, true, false, 0, -1, 7, 2**31, 2**63, -(2**64), 10**15, 10**40, 1.5, -0.0, 1e308, -1e-300,
              "", "7", "x", "\u0000", "\e[2J\e]0;x\a", "\u009b31m\u202Ex\u2066\u200F\u061C\u2028",
              "é\u{1F600}", "a" * 5_000, "live_bytes", "full", "text",
              [], [[]], {}, { "" => nil }, [nil] * 50].freeze
    # Bytes to insert.
    TOKENS = ["{", "}", "[", "]", ":", ",", "\"", "\\", "\\u0000", "\\ud800", "\n", "\r", "\0", "\xFF", "\xC3", "\e",
              "null", "-", "1e999", "NaN", "Infinity", "//", " " * 300, "9" * 400, "[" * 10_000, "{\"a\":" * 3_000,
              "\"#{'\\u00e9' * 2_000}\""].map(&:b).freeze
    private_constant :VALUES, :TOKENS

    def initialize(seed)
      @random = Random.new(seed)
    end

    attr_reader :random

    def pick(list)
      list[@random.rand(list.size)]
    end

    # @param text [String] with JSON lines, or JSON as a whole
    # @return [String]
    def mutate(text)
      text = text.b
      rounds = pick([1, 1, 1, 2, 3, 8])
      rounds.times { text = @random.rand < 0.6 ? other_values(text) : other_bytes(text) }
      text
    end

    # Any JSON value of another kind.
    def value
      pick(VALUES)
    end

    private

    # One of the lines that are JSON gets another value somewhere.
    def other_values(text)
      lines = text.lines
      place = (0...lines.size).to_a.shuffle(random: @random).find { |at| lines[at].start_with?("{", "[") }
      return other_bytes(text) unless place

      found = JSON.parse(lines[place], max_nesting: false)
      lines[place] = "#{JSON.generate(changed(found), max_nesting: false)}\n".b
      lines.join
    rescue JSON::JSONError, EncodingError
      other_bytes(text)
    end

    # A case for each thing that may happen to a value.
    def changed(found)
      return value if @random.rand < 0.1 || !(found.is_a?(Hash) || found.is_a?(Array)) || found.empty?

      copy = found.dup
      key = found.is_a?(Hash) ? pick(found.keys) : @random.rand(found.size)
      case @random.rand(6)
      when 0 then found.is_a?(Hash) ? copy.delete(key) : copy.delete_at(key)
      when 1 then found.is_a?(Hash) ? copy[pick(%w[x n by format command ok bytes message error])] =
                                        value : copy.push(value)
      else copy[key] = changed(found[key])
      end
      copy
    end

    def other_bytes(text)
      at = @random.rand(text.bytesize + 1)
      length = @random.rand([text.bytesize, 40].min + 1)
      case @random.rand(5)
      when 0 then text.byteslice(0, at) + pick(TOKENS) + text.byteslice(at..)
      when 1 then text.byteslice(0, at) + text.byteslice(at + length..).to_s
      when 2 then text.byteslice(0, at) + (text.byteslice(at, length) * 3) + text.byteslice(at..)
      when 3 then text.byteslice(0, at)
      else text.dup.tap { |copy| copy.setbyte(@random.rand(copy.bytesize), @random.rand(256)) unless copy.empty? }
      end
    end
  end
end
