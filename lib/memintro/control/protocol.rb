# frozen_string_literal: true

require_relative "../error"
require_relative "../version"
require_relative "json"

module Memintro
  module Control
    # The lines of the protocol; docs/live_process.md describes it.
    module Protocol
      # Changes when one side would misunderstand the other.
      NUMBER = 1

      # @param line [String]
      # @return [Hash] command, arguments, stream
      # @raise [ControlError]
      def self.request(line)
        request = Json.parse(line)
        raise ControlError, "a request is a JSON object on a line" unless request.is_a?(Hash)

        check_version(request)
        command = request["command"]
        arguments = request.fetch("arguments", {})
        raise ControlError, "the request has no command" unless command.is_a?(String)
        raise ControlError, "arguments is no object" unless arguments.is_a?(Hash)

        { "command" => command, "arguments" => arguments.transform_keys(&:to_sym),
          "stream" => request["stream"] == true }
      rescue Json::Invalid => e
        raise ControlError, "the request is not JSON: #{e.message}"
      end

      # @param command [String]
      # @param arguments [Hash]
      # @return [String] a line
      def self.question(command, arguments)
        "#{Json.generate(memintro: VERSION, protocol: NUMBER, command: command, arguments: arguments, stream: true)}\n"
      end

      # @param format [Symbol]
      # @param bytes [Integer, nil] nil: pieces follow, each after a line with its size, then a line with 0
      # @return [String]
      def self.header(format, bytes)
        "#{Json.generate(ok: true, memintro: VERSION, protocol: NUMBER, program: $PROGRAM_NAME, bytes: bytes,
                         format: format)}\n"
      end

      # @return [String]
      def self.refusal(kind, message)
        "#{Json.generate(ok: false, memintro: VERSION, protocol: NUMBER, error: kind, message: message)}\n"
      end

      # @raise [ControlError]
      def self.check_version(request)
        number = request.fetch("protocol", NUMBER)
        return if number == NUMBER

        raise ControlError, "the process runs memintro #{VERSION} (protocol #{NUMBER}), the command is memintro " \
                            "#{request['memintro']} (protocol #{number}); use the command of the process's version, " \
                            "for example in its folder: bundle exec memintro"
      end
      private_class_method :check_version
    end
  end
end
