# frozen_string_literal: true

require_relative "../leaks"
require_relative "../../support/files"
require_relative "../../support/json_text"
require_relative "../../support/names"
require_relative "../../support/paths"
require_relative "../../support/tool_call"

module Memintro
  class Leaks
    # A core file, which `memintro-tool` searches in a process of its own.
    # @api private
    module CoreFile
      # @param path [String]
      # @param first_words [Boolean]
      # @return [Array(Leaks, Integer)] what was found, and the process that the file is of, if it says so
      # @raise [LeaksError] if there is no verdict
      def self.search(path, first_words: false)
        flags = first_words ? ["first-words"] : []
        text, error, status = ToolCall.capture("leaks-core", absolute(path), *flags)
        raise LeaksError, said(error, status) unless status.success?

        answer = JsonText.parse(text.force_encoding(Encoding::UTF_8))
        pid = answer["pid"]
        [Leaks.of_hash(answer), (pid if pid.is_a?(Integer))]
      rescue Errno::ENOENT
        raise LeaksError, Paths.no_tool
      rescue JsonText::Invalid => e
        raise LeaksError, "the tool's answer is not JSON (#{e.message}); it may belong to another version of memintro"
      end

      def self.absolute(path)
        Files.absolute(path)
      rescue Error => e
        raise LeaksError, e.message
      end
      private_class_method :absolute

      def self.said(error, status)
        text = Names.lines(error.dup.force_encoding(Encoding::UTF_8).scrub).strip.delete_prefix("memintro: ")
        text.empty? ? "the search of the core file ended early (#{status.to_s[/exit \d+|SIG\w+/]})" : text
      end
      private_class_method :said
    end
  end
end
