# frozen_string_literal: true

require "socket"
require_relative "../error"
require_relative "diagnosis"
require_relative "json"
require_relative "protocol"

module Memintro
  module Control
    # The other end: asks one process. Whatever hinders it, a stopped target, another user's, one that is gone or stuck,
    # becomes a {ControlError} that says so and what to do.
    class Client
      # For the first byte of an answer, and for each further piece.
      PATIENCE_SECONDS = 10
      # Longest header that is believed.
      LONGEST_HEADER = 1_048_576
      # Bytes read at a time.
      READ_BYTES = 65_536
      private_constant :LONGEST_HEADER, :READ_BYTES

      # @return [String, nil] what the process calls its program, once it has answered
      attr_reader :program

      # @param pid [Integer]
      # @param path [String] of its socket
      # @param patience [Numeric] seconds
      def initialize(pid, path, patience: PATIENCE_SECONDS)
        @pid = pid
        @path = path
        @patience = patience
      end

      # @param command [String]
      # @param arguments [Hash]
      # @yieldparam piece [String] of the answer, as it comes
      # @return [String] the answer; empty if pieces were yielded
      # @raise [ControlError]
      def ask(command, arguments = {}, &block)
        whole = block ? nil : +"".b
        connect
        send_all(Protocol.question(command, arguments))
        receive(block || ->(piece) { whole << piece })
        whole ? whole.force_encoding(Encoding::UTF_8) : ""
      ensure
        @socket&.close
        @socket = nil
      end

      # @param command [String]
      # @param arguments [Hash]
      # @return [Object] the answer, which must be JSON
      def ask_json(command, arguments = {})
        Json.parse(ask(command, arguments))
      rescue Json::Invalid => e
        raise ControlError, "process #{@pid} answered something that is not JSON (#{e.message})"
      end

      # @return [Boolean] whether nobody can ever answer at this socket again
      def dead?
        @dead == true
      end

      private

      # A process that does not accept leaves clients in the kernel's queue; when that is full, connecting fails.
      def connect
        @buffer = +"".b
        @socket = Socket.new(:UNIX, :STREAM)
        deadline = now + @patience
        begin
          @socket.connect_nonblock(Addrinfo.unix(@path))
        rescue Errno::EAGAIN
          raise ControlError, Diagnosis.silent(@pid, @patience) if now > deadline

          sleep(0.05)
          retry
        end
        check_owner
      rescue Errno::ECONNREFUSED, Errno::ENOENT
        @dead = true
        raise ControlError, Diagnosis.absent(@pid)
      rescue Errno::EACCES, Errno::EPERM
        raise ControlError, Diagnosis.forbidden(@pid)
      end

      # Who called listen may have ended, and a child that inherited the socket may hold it without knowing.
      def check_owner
        owner, = @socket.getsockopt(:SOCKET, :PEERCRED).unpack("i3")
        return if owner.zero? || File.exist?("/proc/#{owner}")

        @dead = true
        raise ControlError, "process #{owner} has ended, but a child that inherited its control socket holds it open " \
                            "without knowing: `memintro ps` lists who can be asked"
      end

      def send_all(text)
        until text.empty?
          sent = @socket.write_nonblock(text, exception: false)
          if sent == :wait_writable
            raise ControlError, Diagnosis.silent(@pid, @patience) unless @socket.wait_writable(@patience)
          else
            text = text.byteslice(sent..)
          end
        end
      rescue Errno::EPIPE, Errno::ECONNRESET
        nil # refused before it was read: the answer says why
      end

      def receive(sink)
        header = read_header
        @program = header["program"]
        raise ControlError, refusal(header) unless header["ok"]
        return read_bytes(header["bytes"], sink) if header["bytes"]

        loop do
          line = read_line
          raise ControlError, refusal(Json.parse(line)) unless line.match?(/\A\d+\z/)
          break if line == "0"

          read_bytes(line.to_i, sink)
        end
      end

      def read_header
        header = Json.parse(read_line)
        return header if header.is_a?(Hash)

        raise ControlError, strange
      rescue Json::Invalid
        raise ControlError, strange
      end

      def strange
        "what listens at #{@path} does not speak memintro's protocol"
      end

      def gone
        "process #{@pid} ended, or stopped listening, before it had answered"
      end

      def refusal(header)
        message = header["message"].to_s
        return "#{message}#{remedy(header)}" if header["error"] == "Memintro::ControlError"

        "process #{@pid} answers: #{message} (#{header['error']})#{remedy(header)}"
      end

      # What one version knows and the other does not. Where the protocols differ, the process says so itself.
      def remedy(header)
        return if header["memintro"] == VERSION || header["protocol"] != Protocol::NUMBER

        "; the command is memintro #{VERSION}, the process runs #{header['memintro']}: #{Protocol::REMEDY}"
      end

      def read_line
        until (line = @buffer.slice!(/\A[^\n]*\n/))
          raise ControlError, strange if @buffer.bytesize > LONGEST_HEADER

          fill
        end
        line.chomp
      end

      def read_bytes(count, sink)
        while count.positive?
          fill if @buffer.empty?
          piece = @buffer.slice!(0, count)
          count -= piece.bytesize
          sink.call(piece)
        end
      end

      def fill
        piece = @socket.read_nonblock(READ_BYTES, exception: false)
        case piece
        when :wait_readable
          raise ControlError, Diagnosis.silent(@pid, @patience) unless @socket.wait_readable(@patience)
        when nil then raise ControlError, gone
        else @buffer << piece
        end
      rescue Errno::ECONNRESET
        raise ControlError, gone
      end

      def now
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end
    end
  end
end
