# frozen_string_literal: true

require_relative "connection"
require_relative "connection_limit"
require_relative "socket_path"

module Memintro
  module Control
    # Listens at a Unix socket and serves whoever connects, in one thread that sleeps in `select` while there is
    # nothing to do. A client that is slow or silent costs the others nothing: nothing here waits for one client, except
    # the work that it asked for.
    #
    # Nothing that goes wrong in here may reach the program.
    class Server
      # Most clients at a time, and so descriptors; the next ones wait in the kernel.
      MOST_CONNECTIONS = 64
      # Most answers that are made and sent at a time; the next questions wait to be read.
      MOST_ANSWERS = 16
      # Clients accepted at a time, so that those who are answered get their turn.
      MOST_ACCEPTED = 16
      # How long to accept nothing when the process has no descriptor left.
      RECOVERY_SECONDS = 1
      # How long to wait for the thread to be idle.
      START_SECONDS = 1
      private_constant :START_SECONDS

      # @return [String, nil] what the process wants to be called
      attr_reader :name
      # @return [Integer] of the process that opened it
      attr_reader :pid
      # @return [String] of the socket
      attr_reader :path
      # @return [Time]
      attr_reader :since

      # @param name [String, nil]
      def initialize(name)
        @name = name
        @pid = Native.pid
        @connections = []
        @crowd = ConnectionLimit.new
        @stopping = false
      end

      # The socket gets its name when it listens already: whoever finds it and is refused can be sure that it is dead.
      # @return [self]
      # @raise [ListenError]
      def open
        @path = SocketPath.prepare(@pid)
        @folder = SocketPath::Folder.new(File.dirname(@path), Process.euid)
        beside = @path.sub(/sock\z/, "new")
        SocketPath.remove(@folder, File.basename(beside))
        @listener = bind(beside)
        @listener.listen(Socket::SOMAXCONN)
        File.rename(beside, @path)
        @inode = File.lstat(@path).ino
        @waker, @bell = IO.pipe
        @since = Time.now
        self
      rescue SystemCallError => e
        raise ListenError, "the control socket #{@path} could not be made: #{e.message}"
      end

      # Comes back when the thread is idle. Until then it queues for Ruby's lock, and a fork that C code makes copies
      # the queue, not the thread: in the child the lock is offered to nobody, again and again, and whoever queues
      # behind waits for ever. Not by sleeping: when a thread that slept goes on, Ruby may wake another one to wait for
      # signals, this one above all, which then queues.
      # @return [nil]
      def run
        @thread = Thread.new { serve }
        @thread.name = "memintro-socket"
        @thread.report_on_exception = false
        @thread.abort_on_exception = false
        deadline = Connection.now + START_SECONDS
        Thread.pass until idle? || Connection.now > deadline
        nil
      end

      # @return [Boolean]
      def alive?
        !@stopping && !@thread.nil? && @thread.alive?
      end

      # Ends the thread, wherever it is idle, and takes the socket away.
      # @return [nil]
      def stop
        leave
        @bell.write_nonblock(".", exception: false)
        @thread.join(1) unless @thread == Thread.current
        nil
      end

      # The process ends: only what others can see has to go.
      # @return [nil]
      def leave
        @stopping = true
        SocketPath.remove(@folder, File.basename(@path), @inode)
        nil
      rescue SystemCallError, IOError
        nil
      end

      # In a forked child: closes what is the parent's, and touches nothing else of it.
      # @return [nil]
      def abandon
        [@listener, @waker, @bell, *@connections.map(&:socket)].each { |io| close(io) }
        nil
      end

      private

      # Whoever holds Ruby's lock and sees the thread sleep knows that it is in no queue.
      def idle?
        status = @thread.status
        (@begun && status == "sleep") || !status
      end

      def bind(path)
        socket = Socket.new(:UNIX, :STREAM)
        # For the moment before chmod the folder's mode protects it.
        socket.bind(Addrinfo.unix(path))
        File.chmod(0o600, path)
        socket
      end

      def serve
        Native.block_signals
        @begun = true
        step until @stopping
      rescue Exception # rubocop:disable Lint/RescueException -- even an interrupt that was meant for another thread
        leave
      ensure
        @connections.each { |connection| connection.close("the process stopped listening") }
        [@listener, @waker, @bell].each { |io| close(io) }
        # Ruby lends the native thread to the next one.
        Native.accept_signals
      end

      # Untracked each time anew: the hook may have been loaded meanwhile, also while this slept.
      def step
        readable, writable = Memintro.untracked { select_ready }
        Memintro.untracked { serve_ready(readable, writable) } unless @stopping
      end

      def serve_ready(readable, writable)
        @connections.each do |connection|
          connection.write if writable.include?(connection.socket)
          connection.read if readable.include?(connection.socket) && room_for_answers?
          connection.expire unless kept_waiting?(connection)
        end
        @connections.reject!(&:closed?)
        accept if readable.include?(@listener)
      end

      # A program that closes descriptors which are not its own makes this fail: then all ends.
      def select_ready
        reading = [@waker]
        # Asked once: while this looks, the time for somebody to make way may come.
        listening = room? && !recovering?
        listening ? reading << @listener : somebody_waits?
        reading.concat(@connections.select(&:wants_to_read?).map(&:socket)) if room_for_answers?
        writing = @connections.select(&:wants_to_write?).map(&:socket)
        IO.select(reading, writing, nil, patience(listening)) || [[], []]
      end

      # @return [Float, nil] seconds to the next deadline; nil: none, sleep for ever
      def patience(listening)
        deadlines = @connections.filter_map { |connection| connection.deadline unless kept_waiting?(connection) }
        deadlines << @recovery if recovering?
        deadlines << @crowd.next_turn(@connections) unless listening || recovering?
        return if deadlines.compact.empty?

        [deadlines.compact.min - Connection.now, 0].max
      end

      # Whether one who knocks can be let in, perhaps in the place of another.
      def room?
        @connections.size < MOST_CONNECTIONS || !@crowd.idler(@connections).nil?
      end

      def room_for_answers?
        @connections.count(&:answering?) < MOST_ANSWERS
      end

      # It has asked, perhaps: nobody looks as long as there are so many answers to be sent.
      def kept_waiting?(connection)
        connection.wants_to_read? && !room_for_answers?
      end

      def recovering?
        @recovery && @recovery > Connection.now
      end

      # What a client has sent already is read at once: most ask as soon as they are connected.
      def accept
        MOST_ACCEPTED.times do
          socket = next_client or return
          connection = Connection.new(socket, self)
          @connections << connection
          connection.read if connection.wants_to_read? && room_for_answers?
        end
      rescue Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::ENOBUFS
        @recovery = Connection.now + RECOVERY_SECONDS
      rescue SystemCallError
        nil # the client is gone already
      end

      # Nobody is sent away before it is sure that somebody else is there.
      #
      # @return [Socket, nil]
      def next_client
        if @connections.size >= MOST_CONNECTIONS
          idler = @crowd.idler(@connections)
          return unless idler && somebody_waits?

          idler.close
          @connections.delete(idler)
        end
        socket, = @listener.accept_nonblock(exception: false)
        return socket if socket.is_a?(Socket)

        @crowd.leaves
        nil
      end

      def somebody_waits?
        @listener.wait_readable(0) ? @crowd.waits : @crowd.leaves
      end

      def close(socket)
        socket&.close
      rescue SystemCallError, IOError
        nil
      end
    end
  end
end
