# frozen_string_literal: true

require "socket"
require_relative "../memintro"
require_relative "control/socket_path"
require_relative "control/server"

module Memintro
  # The control socket of this process: at most one server. Also handles forked children and the end of the process.
  # Loaded by {Memintro.listen}.
  #
  # All methods ask the kernel for the process id: Ruby caches its own since 3.3, and in a child that C code forked, the
  # cached id is the parent's.
  # @api private
  module Control
    @server = nil
    @prepared = false

    # Held while a server is made: a process has one.
    TURN = Mutex.new
    private_constant :TURN

    class << self
      # A thread that is killed, or whose time is up, goes on until the server runs, so that its socket has an answer.
      #
      # @param name [String, nil]
      # @return [String] the socket's path
      # @raise [ListenError]
      def start(name)
        Thread.handle_interrupt(Object => :never) { TURN.synchronize { begin_to_listen(name) } }
      end

      # @return [Boolean] whether there was one
      def stop
        server = @server
        return false unless listening?

        @server = nil
        Native.unwatch_forks
        server.stop
        true
      end

      # @return [Boolean]
      def listening?
        server = @server
        !server.nil? && server.pid == Native.pid && server.alive?
      end

      # The extension calls it in each child that Ruby forks, in a thread of its own. Ruby gives the native one to the
      # next thread of the program.
      def forked
        Memintro.untracked do
          parents = @server
          next if parents.nil? || parents.pid == Native.pid || Brake.on?

          abandon_inherited
          @server = Server.new(parents.name).open
          @server.run
        end
      rescue StandardError
        nil # a child that cannot be asked works none the less
      end

      # Closes the parent's descriptors in a child: a process that holds them looks as if it listened. The extension
      # calls it in each child that C code forks.
      # @return [nil]
      def abandon_inherited
        return if @server.nil? || @server.pid == Native.pid

        Memintro.untracked { @server.abandon }
        @server = nil
      end

      private

      def begin_to_listen(name)
        abandon_inherited
        return @server.path if listening?

        unless Native.threads_can_start
          raise ListenError, "C code forked this process, and Ruby cannot run threads in it; fork with Ruby's fork"
        end

        prepare
        server = Server.new(name).open
        run(server)
        @server = server
        server.path
      end

      # @raise [ThreadError] if the system gives no thread
      def run(server)
        server.run
      rescue ThreadError
        server.leave
        server.abandon
        raise
      end

      def prepare
        Native.watch_forks
        return if @prepared

        @prepared = true
        at_exit { @server&.leave if @server&.pid == Native.pid }
      end
    end
  end
end
