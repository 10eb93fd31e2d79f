# frozen_string_literal: true

require "socket"

module Memintro
  module Control
    # The client's end of a control socket: connects, checks who listens, and limits the time and size of what it reads.
    # Each {PROGRESS_BYTES} of an answer renew the time limit, up to {MOST_PATIENCES} times in total, so that a process
    # that sends single bytes is not waited for.
    class Stream
      # No process will ever answer at this socket; `owner` is the process that had it, if known.
      class Dead < StandardError
        # @return [Integer, nil] the process that listened
        attr_reader :owner

        # @param owner [Integer, nil]
        def initialize(owner = nil)
          @owner = owner
          super("no process listens")
        end
      end

      # Too slow; `bytes` of the answer have come.
      class Slow < StandardError
        # @return [Integer]
        attr_reader :bytes

        # @param bytes [Integer]
        def initialize(bytes)
          @bytes = bytes
          super("#{bytes} bytes came")
        end
      end

      # The other end closed the connection.
      class Ended < StandardError; end
      # A line that is too long.
      class Endless < StandardError; end

      # The listener's user is not the owner of the folder.
      class Stranger < StandardError
        # @return [Integer]
        attr_reader :uid

        # @param uid [Integer]
        def initialize(uid)
          @uid = uid
          super("user #{uid} listens")
        end
      end

      # See {Stream}.
      PROGRESS_BYTES = 65_536
      # See {Stream}.
      MOST_PATIENCES = 30
      # Bytes read at a time.
      READ_BYTES = 65_536
      private_constant :READ_BYTES

      # @param path [String]
      # @param uid [Integer] the user that must be at the other end
      # @param patience [Numeric] seconds
      # @raise [Dead, Slow, Stranger, SystemCallError]
      def initialize(path, uid:, patience:)
        @patience = patience
        @buffer = +"".b
        @received = 0
        @end = now + (patience * MOST_PATIENCES)
        renew
        @socket = Socket.new(:UNIX, :STREAM)
        connect(path)
        check_peer(uid)
      rescue StandardError
        close
        raise
      end

      # @return [nil]
      def close
        @socket&.close
        nil
      end

      # @param text [String]
      # @return [nil]
      # @raise [Slow]
      def write(text)
        until text.empty?
          sent = @socket.write_nonblock(text, exception: false)
          if sent == :wait_writable
            raise Slow, 0 unless @socket.wait_writable(time_left)
          else
            text = text.byteslice(sent..)
          end
        end
      rescue SystemCallError
        nil # refused before it was read: the answer says why
      end

      # @param most [Integer] bytes
      # @return [String] without its end
      # @raise [Slow, Ended, Endless]
      def line(most)
        searched = 0
        until (at = @buffer.index("\n", searched))
          raise Endless if @buffer.bytesize > most

          searched = @buffer.bytesize
          fill
        end
        raise Endless if at > most

        @buffer.slice!(0, at + 1).chomp
      end

      # @param count [Integer]
      # @yieldparam piece [String]
      # @return [nil]
      # @raise [Slow, Ended]
      def bytes(count)
        while count.positive?
          fill if @buffer.empty?
          piece = @buffer.slice!(0, count)
          count -= piece.bytesize
          yield piece
        end
      end

      # The expected bytes have come, so the time limit begins again.
      # @return [nil]
      def renew
        @deadline = [now + @patience, @end].min
        nil
      end

      private

      # If a process does not accept clients, they wait in the kernel's queue; when that is full, connecting fails.
      def connect(path)
        @socket.connect_nonblock(Addrinfo.unix(path))
      rescue Errno::EAGAIN
        raise Slow, 0 if time_left.zero?

        sleep(0.05)
        retry
      rescue Errno::ECONNREFUSED, Errno::ENOENT
        raise Dead
      end

      # The process that called listen may have ended while a child that inherited the socket still holds it. For a
      # process in another PID namespace the kernel says 0.
      def check_peer(uid)
        pid, peer, = @socket.getsockopt(:SOCKET, :PEERCRED).unpack("iII")
        raise Stranger, peer unless peer == uid
        raise Dead, pid if pid.positive? && Liveness.gone?(pid)
      end

      def fill
        piece = @socket.read_nonblock(READ_BYTES, exception: false)
        case piece
        when :wait_readable
          raise Slow, @received unless time_left.positive? && @socket.wait_readable(time_left)
        when nil then raise Ended
        else take(piece)
        end
      rescue SystemCallError
        raise Ended
      end

      def take(piece)
        @buffer << piece
        before = @received / PROGRESS_BYTES
        @received += piece.bytesize
        return renew if @received / PROGRESS_BYTES > before

        # Reading stops at the total limit, even if bytes always arrive.
        raise Slow, @received if time_left.zero?
      end

      def time_left
        [@deadline - now, 0].max
      end

      def now
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end
    end
  end
end
