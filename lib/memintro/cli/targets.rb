# frozen_string_literal: true

require_relative "../control/directory"

module Memintro
  module CLI
    # Which running processes are meant by the words of a command line, and what to do when one of several fails. For
    # classes that write to `@out`, and set `@workers` where all listening processes below those named are meant too.
    module Targets
      private

      # One that is not there must not keep the others from being asked: it is told, and the exit code will be 1.
      #
      # @param words [Array<String>] PIDs and names
      # @return [Array<Control::Directory::Listener>]
      # @raise [Failure] if there is none
      def targets(words)
        raise UsageError, "give the PID or NAME of a process; memintro ps lists them" if words.empty?

        directory = Control::Directory.new
        chosen = words.flat_map do |word|
          @workers ? directory.families(word) : [directory.find(word)]
        rescue ControlError => e
          raise Failure, e.message if words.size == 1

          @absent = complain(e)
          []
        end
        raise Failure, "none of these #{words.size} processes can be asked" if chosen.empty?

        chosen.uniq(&:pid)
      end

      # One that fails must not keep the others from being asked.
      #
      # @param listeners [Array<Control::Directory::Listener>]
      # @param apart [Boolean] whether an empty line stands between what two of them write
      # @yieldparam listener [Control::Directory::Listener]
      # @return [Integer] the exit code
      # @raise [Failure] if the only one fails
      def over_all(listeners, apart:)
        failures = listeners.each_with_index.count do |listener, index|
          @out.puts if apart && index.positive?
          yield listener
          false
        rescue ControlError, SnapshotError => e
          raise Failure, e.message if listeners.size == 1

          complain(e)
        end
        failures.zero? && !@absent ? 0 : 1
      end

      # @return [true]
      def complain(error)
        $stderr.puts("memintro: #{error.message}")
        true
      end

      def client(listener, patience)
        Control::Client.new(listener.pid, listener.path, patience: patience)
      end

      # @return [String] who is meant, for sentences
      def who(listener)
        "process #{listener}"
      end
    end
  end
end
