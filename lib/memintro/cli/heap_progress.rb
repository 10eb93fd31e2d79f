# frozen_string_literal: true

require_relative "../heap/heap_copy"
require_relative "long_stop"
require_relative "../support/units"

module Memintro
  module CLI
    # Requests an answer for which a copy of the process reads its whole heap: it takes seconds, and lines with the
    # number of objects so far come before it. For subclasses of {Remote} that define `arguments_for(listener)`.
    module HeapProgress
      include LongStop

      private

      def answer(listener)
        announce_stop(listener.pid)
        asked = client(listener)
        rest = +"".b
        last = +""
        asked.ask(self.class::COMMAND, request(listener)) do |piece|
          rest << piece
          while (line = rest.slice!(/\A[^\n]*\n/))
            last = line
            objects = line[/\A\{"objects":(\d{1,20})\}\n\z/, 1]
            progress(listener, Integer(objects, 10)) if objects
          end
        end
        clear_progress
        done(listener, asked, last)
      ensure
        clear_progress
      end

      def request(listener)
        { **arguments_for(listener), seconds: patience, progress: true }
      end

      def done(listener, asked, last)
        reply = asked.read(self.class::COMMAND, last)
        listener.called = asked.program
        json? ? @out.puts(JsonText.line(reply)) : show(listener, reply)
      end

      # The process gives up first, and says why.
      def client(listener)
        listener.client(patience + 5)
      end

      def patience
        (@timeout || HeapCopy::SECONDS).to_i.clamp(1, 86_400)
      end

      def progress(listener, objects)
        return unless $stderr.tty?

        @shows = true
        # The line must fit into any terminal, so that the next one takes its place.
        $stderr.print("\rprocess #{listener.pid}: #{Units.count(objects)} objects")
      end

      def clear_progress
        $stderr.print("\r\e[K") if @shows
        @shows = false
      end
    end
  end
end
