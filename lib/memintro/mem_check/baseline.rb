# frozen_string_literal: true

require_relative "../error"
require_relative "../support/user_files"
require_relative "../support/json_text"
require_relative "../support/names"

module Memintro
  module MemCheck
    # A file of findings that are accepted, so that only new ones fail.
    # @api private
    class Baseline
      # Version of the file.
      VERSION = 1
      MOST_BYTES = 16 << 20
      private_constant :MOST_BYTES

      # @param file [String, nil]
      def initialize(file)
        @file = file
      end

      # @return [Hash{String => String}] titles by fingerprint
      # @raise [Error] if it is no such file
      def accepted
        return {} unless @file && File.exist?(@file)

        unless File.file?(@file) && File.size(@file) <= MOST_BYTES
          raise Error, "the baseline #{shown} is no file of a sensible size"
        end

        given = JsonText.parse(File.binread(@file).force_encoding(Encoding::UTF_8))
        rows = given["accepted"] if given.is_a?(Hash) && given["version"] == VERSION
        unless rows.is_a?(Array) && rows.all? { |row| row.is_a?(Hash) && row["fingerprint"].is_a?(String) }
          raise Error, "the baseline #{shown} has an unknown form: write it again with MEMINTRO_UPDATE_BASELINE=1"
        end

        rows.to_h { |row| [row["fingerprint"], row["title"].to_s] }
      rescue JsonText::Invalid => e
        raise Error, "the baseline #{shown} is no JSON (#{e.message}): write it again with MEMINTRO_UPDATE_BASELINE=1"
      rescue SystemCallError => e
        raise Error, "the baseline #{shown} cannot be read: #{e.message.sub(/ @ .*/m, '')}"
      end

      # Writes it anew.
      # @param findings [Array<Finding>]
      # @return [Integer] how many are accepted
      # @raise [Error]
      def write(findings)
        rows = findings.uniq(&:fingerprint).sort_by(&:fingerprint)
        rows = rows.map { |one| JsonText.line("fingerprint" => one.fingerprint, "title" => one.title) }
        UserFiles.save(@file, "{\"version\":#{VERSION},\"accepted\":[\n#{rows.join(",\n")}\n]}\n")
        rows.size
      rescue Error => e
        raise Error, "the baseline #{e.message}"
      end

      private

      def shown
        Names.printable(@file.b)
      end
    end
  end
end
