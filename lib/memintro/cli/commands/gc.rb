# frozen_string_literal: true

require_relative "../remote"
require_relative "../../support/units"

module Memintro
  module CLI
    # `memintro gc PID`.
    class GcCommand < Remote
      # The name of the command.
      NAME = "gc"
      # Its purpose, for the list of commands.
      SUMMARY = "run a garbage collection in a running process"
      # The beginning of its help.
      BANNER = <<~TEXT
        Usage: memintro gc [options] PID|NAME…

        Runs a full garbage collection in a running process, and shows what it changed. The process stops
        meanwhile: some milliseconds for each 100,000 objects.

        #{TARGET}
      TEXT
      # The command of the protocol that it sends.
      COMMAND = "gc"

      private

      def show(listener, answer)
        @out.puts("#{who(listener)} collected its garbage in #{answer['took_ms']} ms: " \
                  "#{change(answer, 'live_objects') { |count| Units.count(count) }} live objects, RSS " \
                  "#{change(answer, 'rss_bytes') { |bytes| Units.bytes(bytes) }}")
      end

      def change(answer, figure)
        # Without /proc there is no RSS.
        [answer["#{figure}_before"], answer[figure]].map { |value| value ? yield(value) : "?" }.join(" -> ")
      end
    end
  end
end
