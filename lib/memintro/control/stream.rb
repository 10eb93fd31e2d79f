# frozen_string_literal: true

require "socket"

module Memintro
  module Control
    # A client's end of a control socket: connects, makes sure who listens, and reads no longer, and no more, than it is
    # told. Each {PROGRESS_BYTES} of an answer renew the patience, up to {MOST_PATIENCES} times in all, so that one who
    # sends a byte now and then is not waited for.
    class Stream
      # Nobody can ever answer at this socket again; `owner` had it, if that is known.
      class Dead < StandardError
        # @return [Integer, nil] the process that listened
        attr_reader :owner

        # @param owner [Integer, nil]
        def initialize(owner = nil)
          @owner = owner
          super("nobody listens")
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

      # The other end hung up.
      class Ended < StandardError; end
      # A line that does not end.
      class Endless < StandardError; end

      # Who listens is another user than the folder's.
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

      # What was waited for has come: the patience begins anew.
      # @return [nil]
      def renew
        @deadline = [now + @patience, @end].min
        nil
      end

      private

      # A process that does not accept leaves clients in the kernel's queue; when that is full, connecting fails.
      def connect(path)
        @socket.connect_nonblock(Addrinfo.unix(path))
      rescue Errno::EAGAIN
        raise Slow, 0 if time_left.zero?

        sleep(0.05)
        retry
      rescue Errno::ECONNREFUSED, Errno::ENOENT
        raise Dead
      end

      # Who called listen may have ended, and a child that inherited the socket may hold it without knowing. Of a
      # process in a name space of its own the kernel says 0.
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

        # Who always has a byte is never waited for.
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
