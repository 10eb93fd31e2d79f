# frozen_string_literal: true

require_relative "../support/arguments"
require_relative "../error"
require_relative "../version"
require_relative "../support/json_text"

module Memintro
  module Control
    # The lines of the protocol; docs/protocol.md describes it.
    module Protocol
      # Changes when the two sides would not understand each other.
      NUMBER = 1
      # Deepest nesting of lists and objects in a request or an answer.
      DEEPEST = 8
      # Most bytes of a header's line, and of a line with the size of a piece.
      LONGEST_LINE = 65_536
      # Advice if the versions of both sides do not match.
      REMEDY = "use the command of the process's version, for example in its folder: bundle exec memintro"

      # A command: what it answers, in words; the most bytes of that; whether it is small, and does not count among the
      # answers that are made at a time; and the fields of the answer, with a ? if one may be missing.
      Command = Struct.new(:about, :bytes, :is_brief, :fields)

      # All commands. {Commands} has a method for each; `rake protocol` writes the tables in docs/protocol.md.
      # @return [Hash{String => Command}]
      def self.commands
        require_relative "../support/native" unless defined?(Native) && Native.respond_to?(:commands)
        Native.commands.to_h { |name, *command| [name, Command.new(*command).freeze] }.freeze
      end

      # @param line [String]
      # @return [Hash] command, arguments, stream
      # @raise [ControlError]
      # @raise [TypeError] on a protocol or stream that is of another kind
      def self.request(line)
        request = JsonText.parse(line, deepest: DEEPEST)
        raise ControlError, "a request is a JSON object on a line" unless request.is_a?(Hash)

        check_version(request)
        command = request["command"]
        arguments = request.fetch("arguments", {})
        raise ControlError, "the request has no command" unless command.is_a?(String)
        raise ControlError, "arguments is no object" unless arguments.is_a?(Hash)

        { "command" => command, "arguments" => arguments.transform_keys(&:to_sym),
          "stream" => Arguments.flag(:stream, request.fetch("stream", false)) }
      rescue JsonText::Invalid => e
        raise ControlError, "the request is not JSON: #{e.message}"
      end

      # @param command [String]
      # @param arguments [Hash]
      # @return [String] a line
      def self.question(command, arguments)
        "#{JsonText.line(memintro: VERSION, protocol: NUMBER, command: command, arguments: arguments, stream: true)}\n"
      end

      # @param format [Symbol]
      # @param bytes [Integer, nil] nil: pieces follow, each after a line with its size, then a line with 0
      # @return [String]
      def self.header(format, bytes)
        "#{JsonText.line(ok: true, memintro: VERSION, protocol: NUMBER, program: program, bytes: bytes,
                         format: format)}\n"
      end

      # @return [String]
      def self.refusal(kind, message)
        "#{JsonText.line(ok: false, memintro: VERSION, protocol: NUMBER, error: kind, message: cut(message))}\n"
      end

      # @return [String] the program's own name
      def self.program
        cut(title || $PROGRAM_NAME)
      end

      # `Process.setproctitle` writes one word over all those of the command line, as far as they reach, and leaves `$0`
      # as it is.
      #
      # @return [String, nil]
      def self.title
        words = File.binread("/proc/self/cmdline").split("\0")
        words.first if words.size == 1 && !$PROGRAM_NAME.b.start_with?(words.first)
      rescue SystemCallError
        nil
      end
      private_class_method :title

      # @param text [String]
      # @return [String] as much of it as answers may have
      def self.cut(text)
        text = Names.utf8(text)
        text.size > Native::LONGEST_TEXT ? "#{text[0, Native::LONGEST_TEXT - 3]}..." : text
      end

      def self.check_version(request)
        number = request.fetch("protocol", NUMBER)
        return if number == NUMBER

        unless number.is_a?(Integer)
          raise TypeError, "protocol is #{Arguments.shown(number)}; it must be #{NUMBER}, an Integer, or left out"
        end

        theirs = "protocol #{Arguments.shown(number)}"
        version = request["memintro"]
        asked = version.is_a?(String) ? "command is memintro #{version} (#{theirs})" : "request has #{theirs}"
        raise ControlError, "the process runs memintro #{VERSION} (protocol #{NUMBER}), the #{asked}; #{REMEDY}"
      end
      private_class_method :check_version
    end
  end
end
