# frozen_string_literal: true

require_relative "connection"
require_relative "connection_limit"
require_relative "socket_path"

module Memintro
  module Control
    # Listens at a Unix socket and serves all clients in one thread, which sleeps in `select` while there is nothing to
    # do. A slow or silent client does not delay the others: the server waits for no client, except for the work that it
    # requested.
    #
    # Errors in the server must not reach the program.
    class Server
      # Most clients, and so descriptors, at a time; further clients wait in the kernel.
      MOST_CONNECTIONS = 64
      # Most answers that are made and sent at a time; further requests wait, except for {Commands::BRIEF}.
      MOST_ANSWERS = 16
      # Clients accepted at a time, so that answers are sent in between.
      MOST_ACCEPTED = 16
      # Seconds without accepting clients if the process has no free descriptor.
      RECOVERY_SECONDS = 1
      # Seconds to wait until the thread is idle.
      START_SECONDS = 1
      private_constant :START_SECONDS

      # @return [String, nil] the name that the process has chosen
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

      # The socket gets its name after it listens, so a client that is refused knows that the process is gone.
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

      # Returns when the thread is idle. Until then it may wait for Ruby's lock. A fork by C code copies this queue but
      # not the thread, so in the child the lock would be offered to a thread that does not exist, and all threads
      # behind it would wait for ever. It does not sleep, because when a thread that slept goes on, Ruby may wake
      # another thread to wait for signals, usually this one, which then waits for the lock.
      # @return [nil]
      def run
        # A thread makes it, because the caller could be killed meanwhile.
        @thread = Thread.new { Thread.handle_interrupt(Object => :immediate) { serve } }
        @thread.name = "memintro-socket"
        @thread.report_on_exception = false
        @thread.abort_on_exception = false
        # Puma's name for a thread that its warning about threads and preload_app! is not about.
        @thread.thread_variable_set(:fork_safe, true)
        deadline = Connection.now + START_SECONDS
        Thread.pass until idle? || Connection.now > deadline
        nil
      end

      # @return [Boolean]
      def alive?
        !@stopping && !@thread.nil? && @thread.alive?
      end

      # @api private
      # @param request [Hash]
      # @return [Boolean] whether it can be answered now. An answer that is brief fits into the kernel's memory. Of
      #   others, which may take seconds to make, one is begun at a time, so that brief ones come between.
      def room_for?(request)
        Commands::BRIEF.include?(request["command"]) || (room_for_answers? && !@busy && (@busy = true))
      end

      # Ends the thread if it is idle, and removes the socket.
      # @return [nil]
      def stop
        leave
        ring
        @thread.join(1) unless @thread == Thread.current
        nil
      end

      # The process ends: only what other processes see is removed.
      # @return [nil]
      def leave
        @stopping = true
        SocketPath.remove(@folder, File.basename(@path), @inode)
        nil
      rescue SystemCallError, IOError
        nil
      end

      # In a forked child: closes the descriptors of the parent, and changes nothing else of it.
      # @return [nil]
      def abandon
        [@listener, @waker, @bell, *@connections.map(&:socket)].each { |io| close(io) }
        nil
      end

      private

      # Wakes the thread. It may have noticed that it is to stop, and closed what wakes it.
      def ring
        @bell.write_nonblock(".", exception: false)
      rescue SystemCallError, IOError
        nil
      end

      # If the caller holds Ruby's lock and sees the thread sleep, the thread is not waiting for the lock.
      def idle?
        status = @thread.status
        (@begun && status == "sleep") || !status
      end

      def bind(path)
        socket = Socket.new(:UNIX, :STREAM)
        # Until chmod, the mode of the folder protects it.
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
        # Ruby reuses the native thread for another thread.
        Native.accept_signals
      end

      # Set to untracked each time: the hook may have been loaded while this thread slept.
      def step
        readable, writable = Memintro.untracked { select_ready }
        Memintro.untracked { serve_ready(readable, writable) } unless @stopping
      end

      def serve_ready(readable, writable)
        @busy = false
        answer_held
        @connections.each do |connection|
          connection.write if writable.include?(connection.socket)
          connection.read if readable.include?(connection.socket)
          connection.expire unless connection.held?
        end
        accept if readable.include?(@listener)
        @connections.reject!(&:closed?)
      end

      # A client that does not read its answer makes way for waiting ones.
      def answer_held
        @connections.each do |connection|
          next unless connection.held?

          @crowd.staller(@connections)&.close unless room_for_answers?
          next if @busy || !room_for_answers?

          connection.answer_held
          @busy = !connection.closed?
        end
      end

      # Fails if the program closes descriptors that are not its own; then the server ends.
      def select_ready
        reading = [@waker]
        # Read once: the time to disconnect a client may come meanwhile.
        listening = room? && !recovering?
        listening ? reading << @listener : somebody_waits?
        reading.concat(@connections.select(&:wants_to_read?).map(&:socket))
        writing = @connections.select(&:wants_to_write?).map(&:socket)
        IO.select(reading, writing, nil, patience(listening)) || [[], []]
      end

      # @return [Float, nil] seconds to the next deadline; nil: none, sleep for ever
      def patience(listening)
        deadlines = @connections.filter_map { |connection| connection.deadline unless connection.held? }
        if @connections.any?(&:held?)
          return 0 if room_for_answers?

          deadlines << @crowd.next_staller(@connections)
        end
        deadlines << @recovery if recovering?
        deadlines << @crowd.next_turn(@connections) unless listening || recovering?
        return if deadlines.compact.empty?

        [deadlines.compact.min - Connection.now, 0].max
      end

      # Whether a client that connects can be accepted, perhaps after another is disconnected.
      def room?
        @connections.size < MOST_CONNECTIONS || !@crowd.idler(@connections).nil?
      end

      def room_for_answers?
        @connections.count(&:answering?) < MOST_ANSWERS
      end

      def recovering?
        @recovery && @recovery > Connection.now
      end

      # Reads at once what a client has already sent: most send their request directly after connecting.
      def accept
        MOST_ACCEPTED.times do
          socket = next_client or return
          connection = Connection.new(socket, self)
          @connections << connection
          connection.read if connection.wants_to_read?
        end
      rescue Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::ENOBUFS
        @recovery = Connection.now + RECOVERY_SECONDS
      rescue SystemCallError
        nil # the client is gone already
      end

      # A client is disconnected only if another one is waiting.
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
