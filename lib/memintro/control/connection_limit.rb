# frozen_string_literal: true

module Memintro
  module Control
    # Who is sent away where more clients knock than the server takes at a time: who does not ask, longest first, and
    # then who does not take its answer.
    class ConnectionLimit
      # A client that has asked nothing for so long, since it came or since its last answer, makes way.
      IDLE_SECONDS = 1
      # The same once clients have been waiting for {IDLE_SECONDS}: who comes in then has waited behind others in the
      # kernel, and had the time to ask.
      SHORT_SECONDS = 0.05
      # A client that has taken nothing of its answer for so long makes way.
      STALLED_SECONDS = 5

      # Somebody waits, and all places are taken.
      # @return [true]
      def waits
        @since ||= Connection.now
        true
      end

      # Nobody waits any more.
      # @return [false]
      def leaves
        @since = nil
        false
      end

      # @param connections [Array<Connection>]
      # @return [Connection, nil] who makes way now
      def idler(connections)
        candidates(connections).min_by { |moment, _| moment }&.then { |moment, one| one if moment <= Connection.now }
      end

      # @param connections [Array<Connection>]
      # @return [Float, nil] when the next one will make way; nil: none will
      def next_turn(connections)
        candidates(connections).map(&:first).min
      end

      private

      # @return [Array<Float, Connection>] when each has to make way
      def candidates(connections)
        connections.reject(&:closed?).map do |one|
          [one.quiet_since + (one.answering? ? STALLED_SECONDS : grace), one]
        end
      end

      def grace
        @since && Connection.now - @since > IDLE_SECONDS ? SHORT_SECONDS : IDLE_SECONDS
      end
    end
  end
end
