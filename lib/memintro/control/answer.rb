# frozen_string_literal: true

require_relative "protocol"

module Memintro
  module Control
    # The output of a command. Small answers are sent whole, with their size. A large answer is sent in pieces while it
    # is being made, if the client supports that.
    class Answer
      # Bytes of a piece.
      PIECE = 65_536

      # @return [Symbol] `:json` or `:text`; to be set before the first write
      attr_accessor :format
      # @return [Boolean] whether it goes to a terminal with colours
      attr_accessor :colour
      # @return [Native::JSONDocument, nil] JSON that is to be sent after what was output, from where it lies
      attr_reader :text

      # @param output [String] bytes to send
      # @param streams [Boolean] whether the client takes pieces
      # @yield when there is enough to be sent
      def initialize(output, streams:, &pause)
        @output = output
        @streams = streams
        @pause = pause
        @body = +"".b
        @format = :text
        @begun = false
        @colour = false
      end

      # Runs the command and completes what it wrote. An error becomes the answer.
      # @return [nil]
      def give
        yield
        @begun ? finish_pieces : finish_whole
      rescue Connection::Gone
        nil
      rescue StandardError, ScriptError, NoMemoryError, SystemStackError => e
        fail_with(e)
      end

      # @param texts [Array<String>]
      # @return [Integer] bytes
      def write(*texts)
        texts.sum do |text|
          text = text.to_s
          @body << text.b
          send_piece if @streams && @body.bytesize >= PIECE
          text.bytesize
        end
      end

      # @return [self]
      def <<(text)
        write(text)
        self
      end

      # Sends what there is without waiting for more, if the client takes pieces.
      # @param text [String]
      # @return [nil]
      def send_now(text)
        return unless @streams

        @body << text.b
        send_piece
      end

      # Sends only this answer.
      # @param text [Native::JSONDocument] JSON
      # @return [nil]
      def send_text(text)
        @format = :json
        @text = text
        nil
      end

      # Code that chooses colours calls it.
      # @return [Boolean]
      def tty?
        @colour
      end

      private

      def send_piece
        @output << Protocol.header(@format, nil) unless @begun
        @begun = true
        @output << "#{@body.bytesize}\n" << @body
        @body = +"".b
        @pause.call
      end

      def finish_pieces
        send_piece unless @body.empty?
        @output << "0\n"
      end

      def finish_whole
        @output << Protocol.header(@format, @text ? @text.bytesize : @body.bytesize) << @body
      end

      # Between pieces there is no header; a line that is not a size is the error.
      def fail_with(error)
        @output << Protocol.refusal(error.class.name, error.message.to_s)
      end
    end
  end
end
