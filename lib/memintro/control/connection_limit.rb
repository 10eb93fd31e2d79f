# frozen_string_literal: true

module Memintro
  module Control
    # Chooses which client is disconnected when more clients connect than the server accepts: first the one that has
    # been without a request for longest, or whose request has waited so long, then one that does not read its answer.
    # The latter also makes way for requests that wait.
    class ConnectionLimit
      # Seconds without a request, since it connected or since its last answer, after which a client may be
      # disconnected.
      IDLE_SECONDS = 1
      # The same after clients have been waiting for {IDLE_SECONDS}: a new client has then waited in the kernel's queue,
      # and had time to send its request.
      SHORT_SECONDS = 0.05
      # Seconds without reading its answer after which a client may be disconnected.
      STALLED_SECONDS = 5

      # Called when a client waits and all places are taken.
      # @return [true]
      def waits
        @since ||= Connection.now
        true
      end

      # Called when no client waits.
      # @return [false]
      def leaves
        @since = nil
        false
      end

      # @param connections [Array<Connection>]
      # @return [Connection, nil] the connection to close now
      def idler(connections)
        candidates(connections).min_by { |moment, _| moment }&.then { |moment, one| one if moment <= Connection.now }
      end

      # @param connections [Array<Connection>]
      # @return [Float, nil] when the next one will make way; nil: none will
      def next_turn(connections)
        candidates(connections).map(&:first).min
      end

      # @param connections [Array<Connection>]
      # @return [Connection, nil] the connection that has not read its answer for longest, and for too long
      def staller(connections)
        stalled(connections).min_by(&:first)&.then { |moment, one| one if moment <= Connection.now }
      end

      # @param connections [Array<Connection>]
      # @return [Float, nil] when there will be a {staller}; nil: everybody reads
      def next_staller(connections)
        stalled(connections).map(&:first).min
      end

      private

      # @return [Array<Float, Connection>] when each has to make way
      def candidates(connections)
        connections.reject(&:closed?).map do |one|
          [one.quiet_since + (one.answering? ? STALLED_SECONDS : grace), one]
        end
      end

      # An answer that is still being made keeps no client waiting.
      def stalled(connections)
        candidates(connections.select(&:wants_to_write?))
      end

      def grace
        @since && Connection.now - @since > IDLE_SECONDS ? SHORT_SECONDS : IDLE_SECONDS
      end
    end
  end
end
