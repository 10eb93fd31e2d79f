# frozen_string_literal: true

require_relative "../heap/heap_copy"
require_relative "long_stop"
require_relative "../support/json_text"
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
        last = nil
        asked.ask(self.class::COMMAND, request(listener)) do |piece|
          rest << piece
          while (line = rest.slice!(/\A[^\n]*\n/))
            last = JsonText.parse(line)
            progress(listener, last["objects"]) if last.keys == ["objects"]
          end
        end
        clear_progress
        done(listener, asked, last)
      rescue JsonText::Invalid => e
        raise ControlError, asked.bad(self.class::COMMAND, "it is not JSON (#{e.message})")
      ensure
        clear_progress
      end

      def request(listener)
        { **arguments_for(listener), seconds: patience, progress: true }
      end

      def done(listener, asked, last)
        reply = asked.checked(self.class::COMMAND, last || {})
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
        return unless $stderr.tty? && objects.is_a?(Integer)

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
