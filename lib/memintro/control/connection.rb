# frozen_string_literal: true

require_relative "answer"
require_relative "commands"
require_relative "../support/json_text"
require_relative "protocol"

module Memintro
  module Control
    # One client: reads its requests, line by line, and sends the answers, never waiting for it. An answer is made in a
    # fiber that pauses while the client has not taken what there is, so that one of any size takes little memory.
    class Connection
      # The client hung up in the middle of an answer.
      class Gone < StandardError; end

      # For the first request, and for the rest of one that has begun.
      READ_SECONDS = 5
      # For the next request of a client that has had an answer.
      IDLE_SECONDS = 60
      # For a client to take {PROGRESS_BYTES} of its answer, or what there is of it.
      WRITE_SECONDS = 30
      # See {WRITE_SECONDS}.
      PROGRESS_BYTES = 65_536
      # Bytes of a request.
      LONGEST_REQUEST = 65_536
      # Bytes read at a time.
      READ_BYTES = 16_384
      # Bytes that wait for the client while more are being made.
      MOST_WAITING = 262_144
      private_constant :READ_SECONDS, :IDLE_SECONDS, :WRITE_SECONDS, :PROGRESS_BYTES, :LONGEST_REQUEST, :READ_BYTES,
                       :MOST_WAITING

      # @return [Socket]
      attr_reader :socket
      # @return [Float] when to lose patience
      attr_reader :deadline
      # @return [Float] when it last did something: came, asked, or took some of its answer
      attr_reader :quiet_since

      # @return [Float] seconds of a clock that nobody sets
      def self.now
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end

      # @param socket [Socket]
      # @param server [Server]
      def initialize(socket, server)
        @socket = socket
        @server = server
        @input = +"".b
        @output = +"".b
        @closed = false
        @last = false
        @taken = 0
        @quiet_since = self.class.now
        wait_for(READ_SECONDS)
        refuse_strangers
      end

      # @return [Boolean]
      def closed?
        @closed
      end

      # @return [Boolean]
      def wants_to_read?
        !@closed && !@last && @output.empty? && @text.nil? && @fiber.nil?
      end

      # @return [Boolean] whether it has asked, and has not got all of its answer
      def answering?
        !@closed && !(@output.empty? && @text.nil? && @fiber.nil?)
      end

      # @return [Boolean]
      def wants_to_write?
        !@closed && !(@output.empty? && @text.nil?)
      end

      # @return [nil]
      def read
        piece = @socket.read_nonblock(READ_BYTES, exception: false)
        return if piece == :wait_readable
        return close if piece.nil?

        wait_for(READ_SECONDS) if @input.empty?
        @input << piece
        take_request
      rescue SystemCallError, IOError
        close
      end

      # @return [nil]
      def write
        return write_text if @output.empty?

        sent = @socket.write_nonblock(@output, exception: false)
        return if sent == :wait_writable

        @output.replace(@output.byteslice(sent..))
        note_taken(sent)
        go_on if @output.bytesize < MOST_WAITING
        finish if @output.empty? && @text.nil? && @fiber.nil?
      rescue SystemCallError, IOError
        close
      end

      # @return [nil]
      def expire
        close if !@closed && self.class.now > @deadline
      end

      # @return [nil]
      def close(_reason = nil)
        return if @closed

        @closed = true
        @fiber&.raise(Gone)
      rescue Gone, FiberError
        nil
      ensure
        @fiber = nil
        drop_text
        begin
          @socket.close
        rescue SystemCallError, IOError
          nil
        end
      end

      private

      def wait_for(seconds)
        @deadline = self.class.now + seconds
      end

      # The folder and the socket's mode keep others out already; root passes both, and may.
      def refuse_strangers
        uid, = @socket.getpeereid
        return if [Process.euid, 0].include?(uid)

        fail_with("Memintro::ControlError", "user #{uid} may not ask a process of user #{Process.euid}")
      end

      def take_request
        line, rest = @input.split("\n", 2)
        if line.bytesize > LONGEST_REQUEST
          fail_with("Memintro::ControlError", "the request is longer than #{LONGEST_REQUEST} bytes")
        elsif rest
          @input = rest
          answer(line)
        end
      end

      def answer(line)
        request = Protocol.request(line)
      rescue ControlError, TypeError => e
        fail_with(e.class.name, e.message)
      else
        answer = Answer.new(@output, streams: request.fetch("stream")) { Fiber.yield }
        @fiber = Fiber.new do
          answer.give { Commands.new(@server, answer).run(request) }
          @text = answer.text
        end
        wait_for(WRITE_SECONDS)
        go_on
      end

      # Lets the command make more, up to what may wait.
      def go_on
        return unless @fiber

        @fiber.resume
        @fiber = nil unless @fiber.alive?
        wait_for(WRITE_SECONDS)
      end

      # From the extension's memory: an answer of any size takes few turns, and no String.
      def write_text
        taken = @text.send_to(@socket.fileno)
        return close if taken.negative?

        note_taken(taken) if taken.positive?
        return if @text.left.positive?

        drop_text
        finish
      end

      def note_taken(bytes)
        @quiet_since = self.class.now
        wait_for(WRITE_SECONDS) if (@taken % PROGRESS_BYTES) + bytes >= PROGRESS_BYTES
        @taken += bytes
      end

      def drop_text
        @text&.clear
        @text = nil
      end

      def finish
        return close if @last

        @quiet_since = self.class.now
        wait_for(IDLE_SECONDS)
        take_request unless @input.empty?
      end

      def fail_with(kind, message)
        @last = true
        @output << Protocol.refusal(kind, message)
        wait_for(WRITE_SECONDS)
      end
    end
  end
end
