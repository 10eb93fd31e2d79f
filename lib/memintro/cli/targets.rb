# frozen_string_literal: true

require_relative "../control/directory"
require_relative "candidates"

module Memintro
  module CLI
    # Finds the running processes that a command line names, and handles the failure of one of several. For classes
    # that write to `@out`, and that set `@workers` to include all listening processes below those named.
    module Targets
      private

      # If one process does not exist, the others are still asked: the error is printed, and the exit code will be 1.
      #
      # @param words [Array<String>] PIDs and names
      # @return [Array<Control::Directory::Listener>]
      # @raise [Failure] if there is none
      def targets(words)
        raise Candidates.missing("give the PID or NAME of a process:", users) if words.empty?

        directory = Control::Directory.new(users: users)
        chosen = words.flat_map do |word|
          @workers ? directory.families(word) : [directory.find(word)]
        rescue ControlError => e
          raise Failure, e.message if words.size == 1

          @absent = complain(e)
          []
        end
        raise Failure, "none of these #{words.size} processes answered" if chosen.empty?

        # With --workers, processes that were not named may end meanwhile, which is not an error.
        @named = @workers ? words : nil
        chosen.uniq(&:pid)
      end

      # @return [Array<Integer>, :all, nil] users whose folders root searches
      def users
        @users&.include?(:all) ? :all : @users
      end

      # @param parser [OptionParser]
      def user_option(parser)
        parser.on("--user USER", "for root: look for processes of USER, or all (everybody);",
                  "default: root's own. May be given several times") do |text|
          (@users ||= []) << user(text)
        end
      end

      def user(text)
        unless Process.euid.zero?
          raise UsageError, "--user #{text}: only root may look into other users' folders; as that user: " \
                            "sudo -u #{text} memintro …"
        end
        return :all if text == "all"
        return Integer(text, 10) if text.match?(/\A\d{1,10}\z/)

        require "etc"
        Etc.getpwnam(text).uid
      rescue ArgumentError
        raise UsageError, "--user is #{text.inspect}; there is no such user here. It must be a user's name or " \
                          "number, or all"
      end

      # If one process fails, the others are still asked.
      #
      # @param listeners [Array<Control::Directory::Listener>]
      # @param apart [Boolean] whether an empty line stands between what two of them write
      # @yieldparam listener [Control::Directory::Listener]
      # @return [Integer] the exit code
      # @raise [Failure] if the only one fails
      def over_all(listeners, apart:)
        ended = 0
        failures = listeners.each_with_index.count do |listener, index|
          @out.puts if apart && index.positive?
          yield listener
          false
        rescue ControlError, SnapshotError => e
          raise Failure, e.message if listeners.size == 1
          next complain(e) unless ended_meanwhile?(listener)

          ended += 1
          left_out(listener)
        end
        failures.zero? && !@absent && ended < listeners.size ? 0 : 1
      end

      # @return [true]
      def complain(error)
        CLI.complain($stderr, error.message)
      end

      # Whether it was found below a named process and has ended.
      def ended_meanwhile?(listener)
        return false if @named.nil? || @named.include?(listener.pid.to_s)

        # A process that closed the connection may take a moment to end.
        3.times { Control::Diagnosis.ended?(listener.pid) ? (return true) : sleep(0.05) }
        false
      end

      # @return [false] it is no failure
      def left_out(listener)
        $stderr.puts("memintro: process #{listener.pid} has ended meanwhile, and is left out")
        false
      end

      def client(listener, patience)
        listener.client(patience)
      end

      # @return [String] the process, for sentences
      def who(listener)
        "process #{listener}"
      end
    end
  end
end
