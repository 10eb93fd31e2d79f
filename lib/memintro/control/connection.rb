# frozen_string_literal: true

require_relative "answer"
require_relative "commands"
require_relative "../support/json_text"
require_relative "protocol"

module Memintro
  module Control
    # One client: reads its requests line by line and sends the answers, without waiting for it. An answer is made in a
    # fiber that pauses until the client has read enough, so that large answers take little memory.
    class Connection
      # The client hung up in the middle of an answer.
      class Gone < StandardError; end

      # Seconds for the first request, and for the rest of a request that has begun.
      READ_SECONDS = 5
      # Seconds for the next request of a client that has had an answer.
      IDLE_SECONDS = 60
      # Seconds for a client to read {PROGRESS_BYTES} of its answer, or the rest of it.
      WRITE_SECONDS = 30
      # See {WRITE_SECONDS}.
      PROGRESS_BYTES = 65_536
      # Most bytes of a request.
      LONGEST_REQUEST = 65_536
      # Bytes read at a time.
      READ_BYTES = 16_384
      # Bytes that may wait for the client while more are made.
      MOST_WAITING = 262_144
      private_constant :READ_SECONDS, :IDLE_SECONDS, :WRITE_SECONDS, :PROGRESS_BYTES, :LONGEST_REQUEST, :READ_BYTES,
                       :MOST_WAITING

      # @return [Socket]
      attr_reader :socket
      # @return [Float] when to lose patience
      attr_reader :deadline
      # @return [Float] when it last did something: came, asked, or took all that waited for it, or {PROGRESS_BYTES}
      attr_reader :quiet_since

      # @return [Float] seconds of a monotonic clock
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
        !@closed && !@last && @held.nil? && @output.empty? && @text.nil? && @fiber.nil?
      end

      # @return [Boolean] whether its request waits until fewer answers are sent
      def held?
        !@closed && !@held.nil?
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

      # Answers the request that waited.
      # @return [nil]
      def answer_held
        request, @held = @held, nil
        begin_answer(request)
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

      # The mode of the folder and of the socket keeps other users out, except root, who is allowed.
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
        @quiet_since = self.class.now
        @server.room_for?(request) ? begin_answer(request) : @held = request
      end

      def begin_answer(request)
        return close if gone?

        answer = Answer.new(@output, streams: request.fetch("stream")) { Fiber.yield }
        @fiber = Fiber.new do
          answer.give { Commands.new(@server, answer).run(request) }
          @text = answer.text
        end
        wait_for(WRITE_SECONDS)
        go_on
      end

      # Whether the client has hung up since it asked. One that has only ended its own side still reads.
      def gone?
        @socket.send("", Socket::MSG_NOSIGNAL | Socket::MSG_DONTWAIT)
        false
      rescue SystemCallError
        true
      end

      # Lets the command make more, up to the limit.
      def go_on
        return unless @fiber

        @fiber.resume
        @fiber = nil unless @fiber.alive?
        wait_for(WRITE_SECONDS)
      end

      # Sends from the extension's memory: large answers need few turns, and no String.
      def write_text
        taken = @text.send_to(@socket.fileno)
        return close if taken.negative?

        note_taken(taken) if taken.positive?
        return if @text.left.positive?

        drop_text
        finish
      end

      def note_taken(bytes)
        progress = (@taken % PROGRESS_BYTES) + bytes >= PROGRESS_BYTES
        wait_for(WRITE_SECONDS) if progress
        @quiet_since = self.class.now if progress || !wants_to_write?
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
