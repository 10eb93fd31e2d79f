# frozen_string_literal: true

require_relative "../malloc/call_sites"
require_relative "../support/names"

module Memintro
  module Report
    # The report for programs: `version` (of this layout), `process`, `totals`, `call_sites`.
    #
    # It is written by hand and site by site: a report must not load a json gem into a process whose own version has
    # yet to be chosen, and a million sites must not become one string. Bytes that are not UTF-8 become `\xNN` in the
    # text, so that every reader can read it.
    class Json
      # What RFC 8259 demands to be escaped, and all else that a terminal acts upon.
      SPECIAL = /["\\#{Names::UNPRINTABLE.source}]/
      # Of these what texts have that are ASCII, as most are: looked for in a tenth of the time.
      ASCII_SPECIAL = /["\\\x00-\x1f\x7f]/
      # Short forms.
      ESCAPES = { "\"" => "\\\"", "\\" => "\\\\", "\n" => "\\n", "\t" => "\\t", "\r" => "\\r" }.freeze
      # How a site's attributes begin.
      KEYS = CallSite::ATTRIBUTES.to_h { |name| [name, "\"#{name}\":"] }.freeze
      private_constant :SPECIAL, :ASCII_SPECIAL, :ESCAPES, :KEYS

      # @param snapshot [CallSites]
      # @param top [Integer, nil] nil: all
      # @param by [Symbol]
      def initialize(snapshot, top: nil, by: :live_bytes, **)
        @snapshot = snapshot
        @top = top
        @by = by
      end

      # @param io [#write]
      # @return [nil]
      def write(io)
        io.write("{\"version\":#{CallSites::LAYOUT},\n\"process\":#{encode(@snapshot.process)},\n" \
                 "\"totals\":#{encode(@snapshot.totals.to_h)},\n\"call_sites\":[")
        write_sites(io)
        io.write("\n]}\n")
        nil
      end

      private

      def write_sites(io)
        separator = "\n"
        @snapshot.each_slice_of_top(@top, by: @by) do |sites|
          buffer = +""
          sites.each do |site|
            append(site, buffer << separator)
            separator = ",\n"
          end
          io.write(buffer)
        end
      end

      # As `encode(site.to_h)` would, in a fifth of the time: there may be a million.
      def append(site, buffer)
        lead = "{"
        CallSite::ATTRIBUTES.each do |name|
          value = site.public_send(name)
          buffer << lead << KEYS[name] << (value.is_a?(Numeric) ? value.to_s : encode(value))
          lead = ","
        end
        append_old(site, buffer) if site.old_bytes
        append_errors(site, buffer) if site.estimated?
        buffer << "}"
      end

      def append_old(site, buffer)
        buffer << ",\"old_bytes\":#{site.old_bytes},\"old_blocks\":#{site.old_blocks}"
        return unless site.estimated?

        old = site.old
        %w[bytes blocks].each do |unit|
          buffer << ",\"old_#{unit}_standard_error\":" << old.standard_error(:"live_#{unit}").to_s
        end
      end

      def append_errors(site, buffer)
        buffer << ",\"estimated\":true"
        site.standard_errors.merge(site.doubts).each { |name, value| buffer << ",\"#{name}\":" << encode(value) }
      end

      def encode(value)
        case value
        when Hash then "{#{value.map { |key, item| "\"#{key}\":#{encode(item)}" }.join(',')}}"
        when Array then "[#{value.map { |item| encode(item) }.join(',')}]"
        when String, Symbol then text(value.to_s)
        when nil then "null"
        else value.to_s
        end
      end

      def text(string)
        string = Names.utf8(string)
        special = string.ascii_only? ? ASCII_SPECIAL : SPECIAL
        string = string.gsub(special) { |char| ESCAPES[char] || format("\\u%04x", char.ord) } if string.match?(special)
        "\"#{string}\""
      end
    end
  end
end
