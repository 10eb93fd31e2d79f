# frozen_string_literal: true

require_relative "../error"
require_relative "diagnosis"
require_relative "../support/json_text"
require_relative "protocol"
require_relative "schema"
require_relative "stream"

module Memintro
  module Control
    # The client: sends a request to one process. If that fails, because the process is stopped, of another user, gone
    # or stuck, it raises a {ControlError} that says so and what to do. An answer that does not match {Schema} also
    # raises it, because any program may listen at the socket.
    class Client
      # Seconds for the first byte of an answer, and for each further 64 KiB.
      PATIENCE_SECONDS = 10

      # @return [String, nil] what the process calls its program, once it has answered
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

        Schema.check_size(whole)
        whole.force_encoding(Encoding::UTF_8)
      rescue Schema::Invalid => e
        raise ControlError, bad(command, e.message)
      end

      # @param command [String] one of {Schema::ANSWERS}
      # @param arguments [Hash]
      # @return [Hash] the answer, with the fields that its schema has
      # @raise [ControlError]
      def ask_json(command, arguments = {})
        checked(command, JsonText.parse(ask(command, arguments), deepest: Protocol::DEEPEST))
      rescue JsonText::Invalid => e
        raise ControlError, bad(command, "it is not JSON (#{e.message})")
      end

      # @param command [String] one of {Schema::ANSWERS}
      # @param answer [Object] what a JSON parser read
      # @return [Hash] with the fields that its schema has
      # @raise [ControlError]
      def checked(command, answer)
        Schema.check(answer, Schema::ANSWERS.fetch(command)).tap { |found| check_identity(found) }
      rescue Schema::Invalid => e
        raise ControlError, bad(command, e.message)
      end

      # @param command [String]
      # @param problem [String]
      # @return [String] what is said of an answer that is none
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
        receive(stream, Schema.most_bytes(command), sink)
      rescue Stream::Dead => e
        @dead = true
        raise ControlError, e.owner ? held_open(e.owner) : Diagnosis.absent(@pid)
      rescue Stream::Slow => e
        raise ControlError, e.bytes.zero? ? Diagnosis.silent(@pid, @patience) : slow(e.bytes)
      rescue Stream::Ended
        @left = true
        raise ControlError, "process #{@pid} ended, or stopped listening, before it had answered"
      rescue Stream::Endless
        raise ControlError, strange
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
        header = read_header(stream)
        @program = header["program"]
        stream.renew
        return whole(stream, header["bytes"], most, sink) if header["bytes"]

        left = most
        loop do
          line = stream.line(Schema::LONGEST_LINE)
          refuse_line(line) unless line.match?(/\A\d{1,15}\z/)
          break if line == "0"

          left -= line.to_i
          raise Schema::Invalid, "it has more than #{most} bytes" if left.negative?

          stream.bytes(line.to_i, &sink)
        end
      end

      def whole(stream, bytes, most, sink)
        raise Schema::Invalid, "it has #{bytes} bytes, and may have #{most}" if bytes > most

        stream.bytes(bytes, &sink)
      end

      # An error may be large, so it is recognized before its fields are read.
      def read_header(stream)
        header = JsonText.parse(stream.line(Schema::LONGEST_LINE), deepest: Protocol::DEEPEST)
        raise ControlError, strange unless header.is_a?(Hash) && header.key?("ok")
        raise ControlError, refusal(header) if header["ok"] == false

        Schema.check(header, Schema::HEADER)
      rescue JsonText::Invalid
        raise ControlError, strange
      end

      # Called between pieces.
      def refuse_line(line)
        raise ControlError, refusal(JsonText.parse(line, deepest: Protocol::DEEPEST))
      rescue JsonText::Invalid
        raise ControlError, strange
      end

      def check_identity(answer)
        pid = answer.fetch("pid", @pid)
        raise Schema::Invalid, "pid is #{pid}; it must be #{@pid}, as its socket says" unless pid == @pid
      end

      def strange
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

      def refusal(line)
        header = Schema.check(line, Schema::REFUSAL)
        message = Names.printable(header["message"])
        return "#{message}#{remedy(header)}" if header["error"] == "Memintro::ControlError"

        "process #{@pid} answers: #{message} (#{Names.printable(header['error'])})#{remedy(header)}"
      end

      # Says which side has another version. If the protocols differ, the process says so itself.
      def remedy(header)
        return if header["memintro"] == VERSION || header["protocol"] != Protocol::NUMBER

        "; the command is memintro #{VERSION}, the process runs #{header['memintro']}: #{Protocol::REMEDY}"
      end
    end
  end
end
