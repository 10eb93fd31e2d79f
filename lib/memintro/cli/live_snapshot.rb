# frozen_string_literal: true

require_relative "../control/directory"

module Memintro
  module CLI
    # A snapshot of a running process, through its control socket: what `snapshot`, `diff`, `iseqs` and `histogram` show
    # where a PID or NAME stands instead of a file.
    module LiveSnapshot
      # A walk of a large heap takes its time.
      PATIENCE_SECONDS = 60
      # Ends of names that are files'.
      FILE = %r{/|\.(?:json|txt|html)\z}
      private_constant :FILE

      # @param word [String] an operand
      # @return [Boolean] whether it means a process
      def self.process?(word)
        !File.exist?(word) && !word.match?(FILE)
      end

      # @param word [String] PID or NAME
      # @param parts [Array<String>]
      # @param settle [Boolean] see Memintro::Control::Commands
      # @param patience [Float, nil] seconds
      # @return [Memintro::Snapshot]
      # @raise [Failure]
      def self.take(word, parts, settle: false, patience: nil)
        listener = Control::Directory.new.find(word)
        client = Control::Client.new(listener.pid, listener.path, patience: patience || PATIENCE_SECONDS)
        Memintro::Snapshot::Saved.parse(client.ask("snapshot", { parts: parts, settle: settle }))
      rescue ControlError => e
        raise Failure, e.message
      end
    end
  end
end
