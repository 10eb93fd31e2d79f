# frozen_string_literal: true

require_relative "../error"
require_relative "diagnosis"
require_relative "protocol"
require_relative "stream"

module Memintro
  module Control
    # The client: sends a request to one process. If that fails, because the process is stopped, of another user, gone
    # or stuck, it raises a {ControlError} that says so and what to do. An answer that the extension finds wrong also
    # raises it, because any program may listen at the socket.
    class Client
      # Seconds for the first byte of an answer, and for each further 64 KiB.
      PATIENCE_SECONDS = 10
      # Most values of a JSON document, each of which becomes some 100 bytes.
      MOST_VALUES = 12_000_000
      private_constant :MOST_VALUES

      # An answer is wrong.
      class Invalid < StandardError; end
      private_constant :Invalid

      # @return [String, nil] the process's name for its program, after its first answer
      attr_reader :program

      # @param pid [Integer]
      # @param path [String] of its socket
      # @param patience [Numeric] seconds
      # @param uid [Integer] the user who must listen there
      def initialize(pid, path, patience: PATIENCE_SECONDS, uid: Process.euid)
        @pid = pid
        @path = path
        @patience = patience
        @uid = uid
      end

      # @param command [String]
      # @param arguments [Hash]
      # @yieldparam piece [String] of the answer, as it comes: bytes that were not checked
      # @return [String] the answer; empty if pieces were yielded
      # @raise [ControlError]
      def ask(command, arguments = {}, &block)
        whole = block ? nil : +"".b
        converse(command, arguments, block || ->(piece) { whole << piece })
        return "" unless whole

        if whole.count(",[{") > MOST_VALUES
          raise Invalid, "the answer has more than #{MOST_VALUES} values; fewer rows may be asked for (--top N)"
        end

        whole.force_encoding(Encoding::UTF_8)
      rescue Invalid => e
        raise ControlError, bad(command, e.message)
      end

      # @param command [String] one of {Protocol.commands}
      # @param arguments [Hash]
      # @return [Hash] the answer, with the fields that it may have
      # @raise [ControlError]
      def ask_json(command, arguments = {})
        read(command, ask(command, arguments))
      end

      # @param command [String] one of {Protocol.commands}
      # @param text [String] its answer
      # @return [Hash] with the fields that it may have
      # @raise [ControlError]
      def read(command, text)
        Native.read_answer(command, text, @pid)
      rescue ArgumentError => e
        raise ControlError, bad(command, e.message)
      end

      # @param command [String]
      # @param problem [String]
      # @return [String] the error for an invalid answer
      def bad(command, problem)
        Names.printable("process #{@pid} gave no valid answer to #{command}: #{problem}. Something else than " \
                                "memintro may listen at #{@path}")
      end

      # @return [Boolean] whether no process can ever answer at this socket again
      def dead?
        @dead == true
      end

      # @return [Boolean] whether the process hung up before it had answered
      def left?
        @left == true
      end

      private

      def converse(command, arguments, sink)
        stream = connect
        stream.write(Protocol.question(command, arguments))
        receive(stream, Protocol.commands.fetch(command).bytes, sink)
      rescue Stream::Dead => e
        @dead = true
        raise ControlError, e.owner ? held_open(e.owner) : Diagnosis.absent(@pid)
      rescue Stream::Slow => e
        raise ControlError, e.bytes.zero? ? Diagnosis.silent(@pid, @patience) : slow(e.bytes)
      rescue Stream::Ended
        @left = true
        raise ControlError, "process #{@pid} ended, or stopped listening, before it had answered"
      rescue Stream::Endless
        raise ControlError, not_ours
      rescue Stream::Stranger => e
        raise ControlError, "user #{e.uid} listens at #{Names.printable(@path)}, which belongs to user #{@uid}; " \
                            "nothing was sent"
      ensure
        stream&.close
      end

      # Later errors are not of the connection: the output may be a pipe that its reader has closed.
      def connect
        Stream.new(@path, uid: @uid, patience: @patience)
      rescue Errno::EACCES, Errno::EPERM
        raise ControlError, Diagnosis.forbidden(@pid)
      rescue SystemCallError, SocketError => e
        raise ControlError, Names.printable("process #{@pid} cannot be asked at #{@path}: #{e.message}")
      end

      def receive(stream, most, sink)
        header = read_header(stream.line(Protocol::LONGEST_LINE), most)
        @program = header["program"]
        stream.renew
        return stream.bytes(header["bytes"], &sink) if header["bytes"]

        left = most
        until (line = stream.line(Protocol::LONGEST_LINE)) == "0"
          refuse(line) unless line.match?(/\A\d{1,15}\z/)
          left -= line.to_i
          raise Invalid, "it has more than #{most} bytes" if left.negative?

          stream.bytes(line.to_i, &sink)
        end
      end

      # Between pieces, a line that is no size is a refusal.
      def refuse(line)
        read_header(line, 0)
        raise ControlError, not_ours
      end

      # @raise [ControlError] if it is a refusal
      def read_header(line, most)
        header = Native.read_header(line, most) or raise ControlError, not_ours
        raise ControlError, refusal(header) unless header["ok"]

        header
      rescue ArgumentError => e
        raise Invalid, e.message
      end

      def not_ours
        "what listens at #{Names.printable(@path)} does not speak memintro's protocol"
      end

      def held_open(owner)
        "process #{owner} has ended, but a child still holds its control socket open; `memintro ps` lists the " \
          "processes that listen"
      end

      def slow(bytes)
        "process #{@pid} sends its answer too slowly: #{bytes} bytes arrived, then less than 64 KiB in " \
          "#{@patience} s; try again later, or use a longer --timeout"
      end

      def refusal(header)
        message = Names.printable(header["message"])
        return "#{message}#{advice(header)}" if header["error"] == "Memintro::ControlError"

        "process #{@pid} answers: #{message} (#{Names.printable(header['error'])})#{advice(header)}"
      end

      # Says which side has another version. If the protocols differ, the process says so itself.
      def advice(header)
        return if header["memintro"] == VERSION || header["protocol"] != Protocol::NUMBER

        "; the command is memintro #{VERSION}, the process runs #{header['memintro']}: #{Protocol::REMEDY}"
      end
    end
  end
end
