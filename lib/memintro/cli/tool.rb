# frozen_string_literal: true

require_relative "../support/paths"

module Memintro
  module CLI
    # Becomes `memintro-tool`, which contains the libraries for plots and terminals. No parent process remains, so the
    # tool keeps the signals, streams and exit status.
    module Tool
      # @param arguments [Array<String>] for the tool
      # @return [void] only after a failure
      # @raise [Failure]
      def self.become(*arguments)
        path = Paths.tool
        raise Failure, Paths.no_tool unless File.file?(path)
        raise Failure, Paths.damage(path) if Paths.damage(path)

        # The tool inherits only the streams.
        exec({ "LD_PRELOAD" => nil }, [path, "memintro-tool"], *arguments)
      rescue Errno::EACCES, Errno::ENOEXEC => e
        raise Failure, "#{path}: cannot be run: #{e.message.sub(/ - .*/m, '')}"
      end
    end
  end
end
